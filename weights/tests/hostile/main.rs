//! Malformed files. Opening and reading any content returns a value or an error that names the file, and never
//! allocates a size that the file claims.

mod gguf;
mod numpy;
mod stream;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

use grove_weights::{TensorFiles, WeightsError};
use proptest::prelude::*;

/// Records the largest single allocation of each thread.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    // The cell no longer exists while a thread ends.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: every method forwards its arguments unchanged to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is also the contract of the system's
        // allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is also the contract of the system's
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is also the contract of the system's
        // allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is also the contract of the system's
        // allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Maximum allocation in bytes. Files in these tests have at most some kilobytes; a tensor with repeated elements may
/// take a megabyte. With `RUST_BACKTRACE` set, candle's errors read the program's symbols, which takes more.
fn allowed() -> usize {
    let backtraces = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    if backtraces { 64 << 20 } else { 2 << 20 }
}

/// Returns the tensor that an error names.
fn tensor_of(error: &WeightsError) -> Option<&str> {
    match error {
        WeightsError::MalformedTensor { tensor, .. } => Some(tensor),
        _ => None,
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

/// Opens the bytes as a file of this name and reads all its tensors. Every listed tensor can be read, except that
/// compressed data may turn out to be corrupted.
fn read_all(name: &str, bytes: &[u8]) -> Result<usize, WeightsError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).expect("written");
    LARGEST.set(0);
    let result = TensorFiles::open(&path).and_then(|checkpoint| {
        let names: Vec<_> = checkpoint.names().map(String::from).collect();
        for name in &names {
            match checkpoint.tensor(name) {
                Ok(data) => assert_eq!(data.bytes.len(), data.num_elements() * data.dtype.size()),
                // Types that no backend supports, such as 8-bit floats.
                Err(WeightsError::Conversion { .. }) => {}
                // Block types that are listed but not decoded.
                Err(WeightsError::Unsupported { reason, .. }) if reason.contains("is quantized as") => {}
                Err(error) if error.to_string().contains("its compressed data") => return Err(error),
                Err(error) => panic!("an accepted file must be readable: {error}"),
            }
        }
        Ok(names.len())
    });
    assert!(LARGEST.get() < allowed(), "{} bytes at once", LARGEST.get());
    if let Err(error) = &result {
        assert!(error.to_string().contains(name), "{error}");
    }
    result
}

/// Returns a safetensors file with this header and `data` bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 1);
    bytes
}

fn tensor(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

#[test]
fn every_rule_of_safetensors_is_kept() {
    let one = |shape: &str, offsets: &str| format!(r#"{{"w":{}}}"#, tensor("F32", shape, offsets));
    let two = |first: &str, second: &str| {
        format!(r#"{{"a":{},"b":{}}}"#, tensor("F32", "[1]", first), tensor("F32", "[1]", second))
    };
    assert_eq!(read_all("good.safetensors", &file(&one("[2]", "[0,8]"), 8)).ok(), Some(1));
    assert_eq!(read_all("good.safetensors", &file(&one("[]", "[0,4]"), 4)).ok(), Some(1));
    assert_eq!(read_all("good.safetensors", &file("{}", 0)).ok(), Some(0));
    let twice = format!(r#"{{"w":{0},"w":{0}}}"#, tensor("F32", "[1]", "[0,4]"));
    let remarks = r#"{"__metadata__":{"a":1}}"#;
    for (bytes, tensor, word) in [
        (file(&one("[2]", "[0,8]"), 7), Some("w"), "truncated"),
        (file(&one("[2]", "[0,8]"), 9), None, "belong to no tensor"),
        (file(&one("[2]", "[8,0]"), 8), Some("w"), "ends before"),
        (file(&one("[2]", "[0,9223372036854775807]"), 8), Some("w"), "the file has 8"),
        (file(&one("[3]", "[0,8]"), 8), Some("w"), "needs 12 bytes"),
        (file(&one("[4294967296,4294967296,4]", "[0,8]"), 8), Some("w"), "more elements than can be counted"),
        (file(&one("[2305843009213693952]", "[0,8]"), 8), Some("w"), "more elements than can be counted"),
        (file(&one("[-2]", "[0,8]"), 8), Some("w"), "whole numbers"),
        (file(&one("[2.0]", "[0,8]"), 8), Some("w"), "whole numbers"),
        (file(&one("[18446744073709551616]", "[0,8]"), 8), Some("w"), "whole numbers"),
        (file(&one("[2]", "[0,8]").replace("F32", "F33"), 8), Some("w"), "known `dtype`"),
        (file(&one("[2]", "[0]"), 8), Some("w"), "two `data_offsets`"),
        (file(&two("[0,4]", "[2,6]"), 6), Some("b"), "overlap"),
        (file(&two("[0,4]", "[0,4]"), 4), Some("b"), "overlap"),
        (file(&two("[0,4]", "[6,10]"), 10), Some("b"), "hole"),
        (file(&two("[2,6]", "[6,10]"), 10), Some("a"), "hole"),
        (file(&twice, 4), None, "`w` appears twice"),
        (file(remarks, 0), None, "text to text"),
        (file("{\"w\":", 0), None, "not valid"),
        (file("[]", 0), None, "not valid"),
        (file(&"[".repeat(10_000), 0), None, "not valid"),
        (file(&format!("{{\"w\":{}", "[".repeat(10_000)), 0), None, "not valid"),
        (b"\x05\0\0\0\0\0\0\0{\"\xff\xfe}".to_vec(), None, "not UTF-8"),
        (b"\x05\0\0\0".to_vec(), None, "too few"),
        ([&(1u64 << 60).to_le_bytes()[..], b"{}"].concat(), None, "the header claims 1152921504606846976 bytes"),
        ([&u64::MAX.to_le_bytes()[..], b"{}"].concat(), None, "the header claims"),
        ([&3u64.to_le_bytes()[..], b"{}"].concat(), None, "the header claims 3 bytes"),
        (Vec::new(), None, "empty"),
    ] {
        let error = read_all("bad.safetensors", &bytes).expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
        if let Some(expected) = tensor {
            assert!(matches!(&error, WeightsError::MalformedTensor { tensor, .. } if tensor == expected), "{error}");
        }
    }
}

#[test]
fn the_crate_agrees_about_what_is_valid() {
    let bytes = std::fs::read(fixture("dtypes.safetensors")).expect("read");
    let header_end = 8 + usize::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    // Every single-bit error in the header: accepted only if the reference implementation accepts it too.
    for position in 0..header_end.min(700) {
        let mut changed = bytes.clone();
        changed[position] ^= 1 << (position % 8);
        let ours = read_all("x.safetensors", &changed);
        if ours.is_ok() {
            assert!(safetensors::SafeTensors::deserialize(&changed).is_ok(), "byte {position}");
        }
    }
}

/// A modification of a file.
#[derive(Clone, Debug)]
enum Change {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    /// Repeats a range, as broken copies do.
    Repeat(prop::sample::Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        6 => (place(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => place().prop_map(Change::Cut),
        1 => (place(), 1..64usize).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (place(), 1..64usize).prop_map(|(at, count)| Change::Repeat(at, count)),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        match change {
            Change::Set(at, byte) => bytes[at.index(length)] = *byte,
            Change::Cut(at) => bytes.truncate(at.index(length)),
            Change::Remove(at, count) => drop(bytes.drain(at.index(length)..(at.index(length) + count).min(length))),
            Change::Insert(at, inserted) => {
                drop(bytes.splice(at.index(length)..at.index(length), inserted.iter().copied()))
            }
            Change::Repeat(at, count) => {
                let stretch = bytes[at.index(length)..(at.index(length) + count).min(length)].to_vec();
                bytes.splice(at.index(length)..at.index(length), stretch);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), length in any::<Option<u64>>(), kind in 0..4usize) {
        let name = ["x.safetensors", "x.bin", "x.index.json", "x.npz"][kind];
        let bytes = length.map_or(bytes.clone(), |length| [&length.to_le_bytes()[..], b"{", &bytes].concat());
        let _ = read_all(name, &bytes);
    }

    #[test]
    fn arbitrary_headers(
        tensors in prop::collection::vec(
            ("[a-c]{1,2}", "F32|BF16|I64|BOOL|F8_E4M3|F4|C64|X", prop::collection::vec(prop_oneof![0..5u64, any::<u64>()], 0..3),
             prop_oneof![0..64u64, any::<u64>()], prop_oneof![0..64u64, any::<u64>()]), 0..5),
        data in 0..64usize,
    ) {
        let tensors: Vec<String> = tensors
            .into_iter()
            .map(|(name, dtype, shape, start, end)| format!("\"{name}\":{}", tensor(&dtype, &format!("{shape:?}"), &format!("[{start},{end}]"))))
            .collect();
        let bytes = file(&format!("{{{}}}", tensors.join(",")), data);
        if read_all("x.safetensors", &bytes).is_ok() {
            prop_assert!(safetensors::SafeTensors::deserialize(&bytes).is_ok());
        }
    }

    #[test]
    fn changed_safetensors(changes in prop::collection::vec(change(), 1..6)) {
        let bytes = std::fs::read(fixture("dtypes.safetensors")).expect("read");
        let _ = read_all("x.safetensors", &changed(bytes, &changes));
    }

    #[test]
    fn changed_pytorch(changes in prop::collection::vec(change(), 1..6), file in 0..3usize) {
        let bytes = std::fs::read(fixture(["dtypes.pt", "views.pth", "nested.pt"][file])).expect("read");
        let _ = read_all("x.pt", &changed(bytes, &changes));
    }

    #[test]
    fn changed_indices(changes in prop::collection::vec(change(), 1..6)) {
        let bytes = std::fs::read(fixture("sharded/model.safetensors.index.json")).expect("read");
        let _ = read_all("model.safetensors.index.json", &changed(bytes, &changes));
    }
}
