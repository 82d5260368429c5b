#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = grove_fuzz_bodies::parquet(bytes);
});
