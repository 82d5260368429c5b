//! numpy archives with false shapes, sizes, and sizes of compressed data.

use std::io::Read;

use flate2::{Compression, Crc, bufread::DeflateEncoder};
use grove_weights::{TensorFiles, WeightsError};
use proptest::prelude::*;

use super::{change, changed, fixture, read_all, tensor_of};

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// An entry of an archive: its content, and its description in the directory.
#[derive(Clone)]
struct Kept {
    name: String,
    bytes: Vec<u8>,
    method: u16,
    flags: u16,
    size: u32,
    checksum: u32,
}

fn kept(name: &str, content: &[u8], method: u16) -> Kept {
    let mut crc = Crc::new();
    crc.update(content);
    let mut bytes = content.to_vec();
    if method == DEFLATED {
        bytes.clear();
        DeflateEncoder::new(content, Compression::best()).read_to_end(&mut bytes).expect("packed");
    }
    Kept { name: name.into(), bytes, method, flags: 0, size: content.len() as u32, checksum: crc.sum() }
}

/// Returns a valid zip archive of the entries.
fn archive(entries: &[Kept]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for Kept { name, bytes, method, flags, size, checksum } in entries {
        let start = file.len() as u32;
        let common = [
            &[20, 0][..],
            &flags.to_le_bytes(),
            &method.to_le_bytes(),
            &[0; 4],
            &checksum.to_le_bytes(),
            &(bytes.len() as u32).to_le_bytes(),
            &size.to_le_bytes(),
            &(name.len() as u16).to_le_bytes(),
            &[0; 2],
        ]
        .concat();
        file.extend([b"PK\x03\x04", &common[..], name.as_bytes(), bytes].concat());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 10], &start.to_le_bytes(), name.as_bytes()].concat());
    }
    let count = (entries.len() as u16).to_le_bytes();
    let (length, start) = ((directory.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes());
    [&file[..], &directory, b"PK\x05\x06\0\0\0\0", &count, &count, &length, &start, &[0; 2]].concat()
}

/// Returns an array of 32-bit floats with this shape in its header and `data` bytes of data.
fn array(shape: &str, data: usize) -> Vec<u8> {
    array_of("<f4", "False", shape, data)
}

fn array_of(descr: &str, fortran: &str, shape: &str, data: usize) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}}}");
    let mut bytes = [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
    bytes.resize(bytes.len() + data, 1);
    bytes
}

#[test]
fn every_rule_is_kept() {
    for method in [STORED, DEFLATED] {
        let one = |content: &[u8]| archive(&[kept("w.npy", content, method)]);
        assert_eq!(read_all("x.npz", &one(&array("(2,)", 8))).ok(), Some(1));
        assert_eq!(read_all("x.npz", &one(&array("(0, 7)", 0))).ok(), Some(1));
        assert_eq!(read_all("x.other", &one(&array("()", 4))).ok(), Some(1), "content decides, not the name");
        for (content, word) in [
            (array("(2,)", 7), "needs 8 bytes, but its data has 7"),
            (array("(2,)", 9), "needs 8 bytes, but its data has 9"),
            (array("(4294967296, 4294967296)", 8), "more elements than can be counted"),
            (array("(4611686018427387904,)", 8), "more elements than can be counted"),
            (array("(99999999999999999999,)", 8), "not a dictionary"),
            (array("(-1,)", 8), "not a dictionary"),
            (b"\x93NUMPY\x02\0\xff\xff\xff\x7f{".to_vec(), "header claims 2147483647 bytes"),
            (b"\x93NUMPY\x01\0\xff\xff{".to_vec(), "header claims 65535 bytes"),
            (b"\x93NUMPY\x01\0\x10\0{".to_vec(), "ends within its header"),
            (b"\x93NUMPY\x07\0\x10\0{".to_vec(), "version 7"),
            (b"\x93NUMPX\x01\0\x10\0{".to_vec(), "does not start"),
            (Vec::new(), "does not start"),
        ] {
            let error = read_all("x.npz", &one(&content)).expect_err(word);
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(tensor_of(&error), Some("w"), "{error}");
        }
        let twice = kept("w.npy", &array("()", 4), method);
        let error = read_all("x.npz", &archive(&[twice.clone(), twice])).expect_err("twice");
        assert!(error.to_string().contains("lists w.npy twice"), "{error}");
    }
    // The same rules for a single array.
    assert_eq!(read_all("x.npy", &array("(2,)", 8)).ok(), Some(1));
    let error = read_all("x.npy", &array("(2,)", 7)).expect_err("too short");
    assert_eq!(tensor_of(&error), Some("x"), "{error}");
}

#[test]
fn inconsistent_directories_are_rejected() {
    let good = kept("w.npy", &array("(2,)", 8), DEFLATED);
    for (entry, word) in [
        (Kept { flags: 1, ..good.clone() }, "encrypted"),
        (Kept { method: 14, ..good.clone() }, "another method"),
        (Kept { method: STORED, ..good.clone() }, "another method"),
        (Kept { size: good.size + 4, ..good.clone() }, "needs 8 bytes, but its data has 12"),
        (Kept { size: 20, ..good.clone() }, "header is longer than its entry"),
        (Kept { checksum: good.checksum ^ 1, ..good.clone() }, "check sum"),
        (Kept { bytes: good.bytes[..good.bytes.len() - 4].into(), ..good.clone() }, "compressed data is broken"),
        (Kept { bytes: vec![0xff; 40], ..good.clone() }, "compressed data is broken"),
        (Kept { bytes: Vec::new(), ..good.clone() }, "too many for deflate"),
    ] {
        let error = read_all("x.npz", &archive(&[entry])).expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(tensor_of(&error), Some("w"), "{error}");
    }
    let error = read_all("x.npz", &archive(&[Kept { name: "folder/".into(), ..good }])).expect_err("no folder");
    assert!(matches!(error, WeightsError::Unsupported { .. }), "{error}");
    let error = read_all("x.zip", &archive(&[kept("notes.txt", b"text", STORED)])).expect_err("neither").to_string();
    assert!(error.contains("neither data.pkl (PyTorch) nor .npy arrays"), "{error}");
}

/// `read_all` checks the size of allocations.
#[test]
fn decompression_bombs_are_rejected() {
    // 64 MB of data in 64 kB, of which header and directory admit 16 bytes.
    let small = array("(4,)", 16);
    let bomb = Kept { size: small.len() as u32, ..kept("w.npy", &array("(4,)", 64 << 20), DEFLATED) };
    assert!(bomb.bytes.len() < 100_000);
    let error = read_all("x.npz", &archive(&[bomb])).expect_err("too much").to_string();
    assert!(error.contains("has more bytes"), "{error}");

    // Header and directory claim 64 MB, which this many compressed bytes could contain, but the content is smaller.
    let shape = format!("({},)", 16 << 20);
    let promise = (array(&shape, 0).len() + (64 << 20)) as u32;
    let mut hollow = Kept { size: promise, ..kept("w.npy", &array(&shape, 1000), DEFLATED) };
    hollow.bytes.resize(100_000, 0);
    let error = read_all("x.npz", &archive(&[hollow.clone()])).expect_err("too little").to_string();
    assert!(error.contains("has 1"), "{error}");

    // This few compressed bytes cannot contain 64 MB, which is detected before anything is read.
    hollow.bytes.truncate(1000);
    let error = read_all("x.npz", &archive(&[hollow])).expect_err("impossible").to_string();
    assert!(error.contains("too many for deflate"), "{error}");
}

#[test]
fn every_truncation_is_an_error() {
    for name in ["few.npz", "piped.npz", "none.npz", "whole.int16.npy", "big_fortran.npy"] {
        let bytes = std::fs::read(fixture("numpy").join(name)).expect("read");
        for length in 0..bytes.len() {
            assert!(read_all("x.npz", &bytes[..length]).is_err(), "{length} bytes of {name}");
        }
    }
}

#[test]
fn compressed_values_are_right_or_refused() {
    let path = fixture("numpy/few.npz");
    let bytes = std::fs::read(&path).expect("read");
    let original = TensorFiles::open(&path).expect("opened");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.npz");
    // Every byte changed, one at a time.
    for position in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[position] ^= 1 << (position % 8);
        std::fs::write(&path, changed).expect("written");
        let Ok(checkpoint) = TensorFiles::open(&path) else { continue };
        for name in checkpoint.names().filter(|name| original.contains(name)) {
            if let Ok(data) = checkpoint.tensor(name) {
                assert_eq!(data, original.tensor(name).expect("read"), "byte {position}, {name}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_numpy(changes in prop::collection::vec(change(), 1..6), file in 0..5usize) {
        let file = ["stored.npz", "deflated.npz", "piped.npz", "versions.npz", "fortran_cube.npy"][file];
        let bytes = std::fs::read(fixture("numpy").join(file)).expect("read");
        let _ = read_all("x.npz", &changed(bytes, &changes));
    }

    #[test]
    fn arbitrary_arrays(
        descr in "[<>|=]?([fiu][1248]|b1|c8|[OVUSMm?x][0-9]{0,2})",
        shape in prop::collection::vec(prop_oneof![0..5u64, any::<u64>()], 0..4),
        fortran in "True|False",
        data in prop::option::of(0..64usize),
        method in prop_oneof![Just(STORED), Just(DEFLATED)],
    ) {
        // Exactly the required data, if that is small.
        let count = shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size)).filter(|count| *count < 1000);
        let size: u64 = descr.chars().last().and_then(|digit| digit.to_digit(10)).unwrap_or(1).into();
        let data = data.or(count.map(|count| (count * size) as usize)).unwrap_or(8);
        let shape: String = shape.iter().map(|size| format!("{size}, ")).collect();
        let array = array_of(&descr, &fortran, &format!("({})", shape.trim_end()), data);
        let _ = read_all("x.npz", &archive(&[kept("w.npy", &array, method)]));
    }
}
