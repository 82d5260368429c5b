//! The seeds of all readers, and modified copies of them: each is read or rejected. The copies are always the same, so
//! that a failure is reproducible; `PROPTEST_CASES=100000` sets their number. `tools/fuzz/run` chooses modifications by
//! coverage.

mod watched;

use std::path::Path;

use grove_fuzz_bodies::{READERS, Reader};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

/// Number of modified copies per reader.
const COPIES: u32 = 400;
/// Allocation limit in bytes: an image of four million pixels takes less.
const ALLOWED: usize = 512 << 20;

fn reader(name: &str) -> Reader {
    READERS.into_iter().find(|reader| reader.name == name).expect("a reader of this name")
}

/// Returns names and contents of the seeds, sorted by name.
fn seeds(reader: Reader) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds").join(reader.name);
    let listing = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = listing.map(|file| file.unwrap().path());
    let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
    let mut seeds: Vec<_> = files.map(|file| (name(&file), std::fs::read(&file).unwrap())).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    seeds
}

/// A modification of a file. Positions are fractions of its length.
#[derive(Clone, Debug)]
enum Change {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    /// An extreme number of an integer type.
    Number(prop::sample::Index, u8, u64),
    /// In a text, replaces a number.
    Digits(prop::sample::Index, &'static str),
    /// Repeats a range many times.
    Repeat(prop::sample::Index, usize, usize),
    /// Replaces a range by a range of another seed.
    Splice(prop::sample::Index, prop::sample::Index, prop::sample::Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<prop::sample::Index>;
    let extreme =
        prop::sample::select(vec![0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 1 << 31, u64::MAX >> 32, 1 << 62, u64::MAX]);
    let digits = prop::sample::select(vec![
        "0",
        "-1",
        "1e400",
        "0.5",
        "null",
        "2147483648",
        "9223372036854775807",
        "18446744073709551616",
        "\"x\"",
        "[]",
    ]);
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        4 => (place(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        1 => place().prop_map(Change::Cut),
        2 => (place(), 1..64usize).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (place(), prop::collection::vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        3 => (place(), prop::sample::select(vec![1u8, 2, 4, 8]), extreme).prop_map(|(at, size, value)| Change::Number(at, size, value)),
        3 => (place(), digits).prop_map(|(at, digits)| Change::Digits(at, digits)),
        1 => (place(), 1..64usize, 1..200usize).prop_map(|(at, count, times)| Change::Repeat(at, count, times)),
        2 => (place(), place(), place(), 1..200usize).prop_map(|(at, seed, from, count)| Change::Splice(at, seed, from, count)),
    ]
}

impl Change {
    fn make(&self, bytes: &mut Vec<u8>, seeds: &[(String, Vec<u8>)]) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        let end = |at: usize, count: usize| (at + count).min(length);
        match self {
            Self::Set(at, byte) => bytes[at.index(length)] = *byte,
            Self::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Remove(at, count) => drop(bytes.drain(at.index(length)..end(at.index(length), *count))),
            Self::Insert(at, inserted) => drop(bytes.splice(at.index(length)..at.index(length), inserted.clone())),
            Self::Number(at, size, value) => {
                let at = at.index(length);
                let number = &value.to_le_bytes()[..usize::from(*size)];
                drop(bytes.splice(at..end(at, number.len()), number.to_vec()));
            }
            Self::Digits(at, digits) => {
                let digit = |byte: &u8| byte.is_ascii_digit();
                let Some(from) = bytes[at.index(length)..].iter().position(digit).map(|from| from + at.index(length))
                else {
                    return;
                };
                let count = bytes[from..].iter().take_while(|byte| digit(byte)).count();
                drop(bytes.splice(from..from + count, digits.bytes()));
            }
            Self::Repeat(at, count, times) => {
                let stretch = bytes[at.index(length)..end(at.index(length), *count)].repeat(*times);
                drop(bytes.splice(at.index(length)..at.index(length), stretch));
            }
            Self::Splice(at, seed, from, count) => {
                let other = &seeds[seed.index(seeds.len())].1;
                if !other.is_empty() {
                    let from = from.index(other.len());
                    let stretch = other[from..(from + count).min(other.len())].to_vec();
                    drop(bytes.splice(at.index(length)..end(at.index(length), *count), stretch));
                }
            }
        }
    }
}

/// Reads a file, which must return a value or an error with a message, with limited memory.
fn read(reader: Reader, bytes: &[u8]) -> Result<(), String> {
    watched::forget();
    let read = (reader.read)(bytes).map_err(|error| error.to_string());
    assert!(watched::largest() < ALLOWED, "{}: {} bytes at once", reader.name, watched::largest());
    if let Err(error) = &read {
        assert!(!error.is_empty(), "{}: an error without a word", reader.name);
        let shown: String = error.chars().take(300).collect();
        // An error may quote what it found, but not the whole file.
        assert!(error.len() < 2000 + 2 * bytes.len(), "{}: an error of {} bytes: {shown}", reader.name, error.len());
    }
    read
}

fn check(name: &str) {
    let reader = reader(name);
    let seeds = seeds(reader);
    for (seed, bytes) in &seeds {
        match (seed.split('-').next(), read(reader, bytes)) {
            (Some("good"), read) => assert_eq!(read, Ok(()), "{name}/{seed}"),
            (Some("bad"), read) => assert!(read.is_err(), "{name}/{seed} was read"),
            (kind, _) => assert_eq!(kind, Some("any"), "{name}/{seed} is neither good nor bad nor any"),
        }
    }
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => TestRunner::new(config),
        None => {
            let always = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            TestRunner::new_with_rng(Config { cases: COPIES, ..config }, always)
        }
    };
    let copies = (any::<prop::sample::Index>(), prop::collection::vec(change(), 1..6));
    let outcome = runner.run(&copies, |(seed, changes)| {
        let mut bytes = seeds[seed.index(seeds.len())].1.clone();
        changes.iter().for_each(|change| change.make(&mut bytes, &seeds));
        let _ = read(reader, &bytes);
        Ok::<(), TestCaseError>(())
    });
    if let Err(error) = outcome {
        panic!("{name}: {error}");
    }
}

macro_rules! readers {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_reader_has_a_test_and_a_target() {
            let mut tested = vec![$(stringify!($name)),*];
            tested.sort_unstable();
            assert_eq!(READERS.map(|reader| reader.name).to_vec(), tested);
            for name in tested {
                let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets").join(format!("{name}.rs"));
                let text = std::fs::read_to_string(&target).unwrap_or_else(|error| panic!("{}: {error}", target.display()));
                assert!(text.contains(&format!("grove_fuzz_bodies::{name}(")), "{}", target.display());
            }
        }
    };
}

readers! {
    chat_template config generation_config gguf image metrics npz parquet pickle preprocessor run safetensors shard_index
    tokenizer_json tokenizer_model
}
