//! GGUF files with false lengths, counts, shapes, types and offsets.

use grove_weights::{TensorFiles, WeightsError};
use proptest::prelude::*;

use super::{change, changed, fixture, read_all, tensor_of};

const F32: u32 = 0;
const Q4_0: u32 = 2;

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// Returns a key of a type with the bytes of its value.
fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(name.as_bytes())[..], &kind.to_le_bytes(), value].concat()
}

/// Returns a tensor's row; sizes are innermost first.
fn row(name: &str, sizes: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let sizes: Vec<u8> = (sizes.len() as u32)
        .to_le_bytes()
        .into_iter()
        .chain(sizes.iter().flat_map(|size| size.to_le_bytes()))
        .collect();
    [&text(name.as_bytes())[..], &sizes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat()
}

fn head(version: u32, tensors: u64, keys: u64) -> Vec<u8> {
    [&b"GGUF"[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

/// Returns a file with `data` bytes after its aligned header.
fn file(keys: &[Vec<u8>], rows: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut bytes = [head(3, rows.len() as u64, keys.len() as u64), keys.concat(), rows.concat()].concat();
    bytes.resize(bytes.len().next_multiple_of(32) + data, 1);
    bytes
}

fn one(sizes: &[u64], kind: u32, offset: u64, data: usize) -> Vec<u8> {
    file(&[], &[row("w", sizes, kind, offset)], data)
}

fn keyed(kind: u32, value: &[u8]) -> Vec<u8> {
    file(&[key("k", kind, value)], &[], 0)
}

fn aligned(kind: u32, value: &[u8]) -> Vec<u8> {
    file(&[key("general.alignment", kind, value)], &[row("w", &[2], F32, 0)], 96)
}

#[test]
fn reads_valid_files() {
    for (bytes, count) in [
        (file(&[], &[], 0), 0),
        (one(&[2, 3], F32, 0, 24), 1),
        (one(&[], F32, 0, 4), 1),
        (one(&[32, 2], Q4_0, 32, 68), 1),
        // A tensor without values cannot be out of bounds.
        (one(&[0, 1 << 60], Q4_0, 0, 0), 1),
        (file(&[], &[row("b", &[2], F32, 64), row("a", &[2], F32, 0)], 72), 2),
        (aligned(4, &8u32.to_le_bytes()), 1),
        (aligned(10, &64u64.to_le_bytes()), 1),
        (keyed(9, &[&0u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat()), 0),
    ] {
        assert_eq!(read_all("good.gguf", &bytes).map_err(|error| error.to_string()), Ok(count));
    }
    assert_eq!(read_all("good.other", &one(&[2], F32, 0, 8)).ok(), Some(1), "content decides, not the name");
}

#[test]
fn every_rule_of_the_head_and_the_keys_is_kept() {
    let huge = u64::MAX.to_le_bytes();
    let array = |element: u32, count: u64| [&element.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let twice = file(&[key("k", 0, &[1]), key("k", 0, &[2])], &[], 0);
    for (bytes, word) in [
        (b"GGUF".to_vec(), "its header: the file ends"),
        (head(3, 0, 0)[..20].to_vec(), "its header: the file ends"),
        (head(1, 0, 0), "version 1"),
        (head(4, 0, 0), "version 4"),
        (head(0, 0, 0), "version 0"),
        (head(3 << 24, 0, 0), "big-endian"),
        ([&b"FUGG"[..], &head(3, 0, 0)[4..]].concat(), "big-endian"),
        (head(3, 0, u64::MAX), "claims 18446744073709551615 keys"),
        (head(3, u64::MAX, 0), "claims 18446744073709551615 tensors"),
        (head(2, 1, 0), "claims 1 tensors"),
        ([head(3, 0, 1), vec![0; 12]].concat(), "claims 1 keys"),
        ([head(3, 0, 1), huge.to_vec(), vec![0; 8]].concat(), "the name of key 1 of 1: it claims"),
        ([head(3, 0, 1), 60_000u64.to_le_bytes().to_vec(), vec![0; 8]].concat(), "the file has only 8 more"),
        ([head(3, 0, 1), text(b"\xff\xfe"), vec![0; 16]].concat(), "the name of key 1 of 1: its text is not UTF-8"),
        ([head(3, 0, 100_000), vec![0; 2_000_000]].concat(), "at most 65536 are read"),
        (twice, "key `k`: it appears twice"),
        (keyed(13, &[0; 8]), "key `k`: its value is of type 13"),
        (keyed(7, &[2]), "key `k`: it has the boolean 2"),
        (keyed(8, &huge), "key `k`: it claims 18446744073709551615 bytes"),
        (keyed(8, &text(b"\xc3")), "key `k`: its text is not UTF-8"),
        (keyed(9, &array(4, u64::MAX)), "key `k`: its array claims 18446744073709551615 elements"),
        (keyed(9, &array(8, 1 << 61)), "key `k`: its array claims 2305843009213693952 elements"),
        (keyed(9, &array(77, 1)), "key `k`: its value is of type 77"),
        (keyed(9, &array(9, 1).repeat(100_000)), "key `k`: element 0: element 0:"),
        (keyed(9, &[array(8, 2), text(b"a"), text(b"\x80")].concat()), "element 1: its text is not UTF-8"),
        (aligned(4, &0u32.to_le_bytes()), "key `general.alignment`"),
        (aligned(4, &48u32.to_le_bytes()), "key `general.alignment`: it must be a power of two"),
        (aligned(8, &text(b"32")), "key `general.alignment`"),
        (aligned(5, &(-32i32).to_le_bytes()), "key `general.alignment`"),
    ] {
        let error = read_all("bad.gguf", &bytes).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    }
    // A power of two beyond the end of the file.
    let error = read_all("bad.gguf", &aligned(10, &(1u64 << 63).to_le_bytes())).expect_err("too large").to_string();
    assert!(error.contains("ends beyond the file's"), "{error}");
}

#[test]
fn every_rule_of_tensors_is_kept() {
    let pair = |first: u64, second: u64| file(&[], &[row("w", &[8], F32, second), row("a", &[8], F32, first)], 96);
    for (bytes, word) in [
        (one(&[1; 5], F32, 0, 4), "it has 5 axes"),
        (one(&[], Q4_0, 0, 32), "rows of 1 values are not whole blocks of 32 (Q4_0)"),
        (one(&[2, 32], Q4_0, 0, 64), "rows of 2 values"),
        (one(&[3], F32, 0, 11), "ends beyond the file's"),
        (one(&[32, 3], Q4_0, 0, 53), "ends beyond the file's"),
        (one(&[2], F32, 4, 64), "not a multiple of the alignment 32"),
        (one(&[2], F32, 1 << 40, 64), "ends beyond the file's"),
        (one(&[2], F32, u64::MAX - 31, 64), "ends beyond the file's"),
        (one(&[1 << 32, 1 << 32], F32, 0, 64), "more elements than can be counted"),
        (one(&[1 << 62], F32, 0, 64), "more elements than can be counted"),
        (one(&[u64::MAX], 24, 0, 64), "ends beyond the file's"),
        (one(&[256, 15 << 52], 15, 0, 64), "more elements than can be counted"),
        (pair(0, 0), "within that of `a`"),
        (file(&[], &[row("w", &[8], F32, 32), row("a", &[9], F32, 0)], 96), "within that of `a`"),
        (file(&[], &[row("w", &[8], F32, 0), row("w", &[8], F32, 32)], 96), "the name appears twice"),
    ] {
        let error = read_all("bad.gguf", &bytes).expect_err(word);
        assert!(error.to_string().contains(word) && tensor_of(&error) == Some("w"), "{error}");
    }
    for number in [4, 31, 36, 42, u32::MAX] {
        let error = read_all("bad.gguf", &one(&[32], number, 0, 64)).expect_err("unknown");
        assert!(matches!(&error, WeightsError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(&format!("its tensor `w` has the unknown type {number}")), "{error}");
    }
    let bytes = file(&[], &[[&text(b"\xff")[..], &[0; 16]].concat()], 0);
    let error = read_all("bad.gguf", &bytes).expect_err("not UTF-8").to_string();
    assert!(error.contains("the name of tensor 1 of 1: its text is not UTF-8"), "{error}");
}

#[test]
fn no_shortened_file_is_read_beyond_its_end() {
    let bytes = std::fs::read(fixture("gguf/aligned.gguf")).expect("read");
    // The last tensor's data is followed by optional padding.
    let data = bytes.len() - 256 + 8;
    for length in 0..bytes.len() {
        let result = read_all("short.gguf", &bytes[..length]);
        assert!(result.is_err() || length >= data, "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn no_flipped_bit_is_a_crash() {
    let bytes = std::fs::read(fixture("gguf/types.gguf")).expect("read");
    for position in 0..bytes.len().min(4000) {
        let mut changed = bytes.clone();
        changed[position] ^= 1 << (position % 8);
        let _ = read_all("flipped.gguf", &changed);
    }
}

#[test]
fn split_models_that_claim_many_parts() {
    let directory = tempfile::tempdir().expect("a directory");
    let count = key("split.count", 10, &u64::MAX.to_le_bytes());
    let path = directory.path().join(format!("m-00001-of-{}.gguf", u64::MAX));
    std::fs::write(&path, file(&[count], &[], 0)).expect("written");
    let error = TensorFiles::open(&path).expect_err("not there").to_string();
    assert!(error.contains("its part 2 of 18446744073709551615"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), tensors in 0..4u64, keys in 0..4u64) {
        let _ = read_all("x.gguf", &[head(3, tensors, keys), bytes].concat());
    }

    #[test]
    fn arbitrary_tables(
        keys in prop::collection::vec(("[a-c]{1,2}|general.alignment", 0..14u32, prop::collection::vec(0..10u8, 0..24)), 0..4),
        rows in prop::collection::vec(
            ("[a-c]{1,2}", prop::collection::vec(prop_oneof![0..5u64, Just(32), Just(256), any::<u64>()], 0..6),
             0..44u32, prop_oneof![(0..8u64).prop_map(|at| at * 32), any::<u64>()]), 0..5),
        data in 0..2048usize,
    ) {
        let keys: Vec<_> = keys.iter().map(|(name, kind, value)| key(name, *kind, value)).collect();
        let rows: Vec<_> = rows.iter().map(|(name, sizes, kind, offset)| row(name, sizes, *kind, *offset)).collect();
        let _ = read_all("x.gguf", &file(&keys, &rows, data));
    }

    #[test]
    fn changed_files(changes in prop::collection::vec(change(), 1..6), file in 0..2usize) {
        let bytes = std::fs::read(fixture(["gguf/types.gguf", "gguf/aligned.gguf"][file])).expect("read");
        let _ = read_all("x.gguf", &changed(bytes, &changes));
    }
}
