//! PyTorch files from before version 1.6 with false orders and sizes of their parts.

use grove_weights::{TensorFiles, WeightsError};
use proptest::prelude::*;

use super::{LARGEST, allowed, change, changed, fixture, read_all, tensor_of};

/// Pickle of the magic number.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

const FIXTURES: [&str; 6] =
    ["old_format.pt", "old_nested.pt", "old_dtypes.pt", "old_views.pth", "old_storage_views.pt", "old_sparse.pt"];

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn number(number: i64) -> Vec<u8> {
    [b"\x8a\x08", &number.to_le_bytes()[..]].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(", &items.concat()[..], b"t"].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](", &items.concat()[..], b"e"].concat()
}

fn dictionary(items: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<_> = items.iter().map(|(key, value)| [&text(key)[..], value].concat()).collect();
    [b"}(", &items.concat()[..], b"u"].concat()
}

fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

/// Returns a storage of this class; `part` describes a view of another storage.
fn storage(class: &str, key: &str, count: i64, part: Option<(i64, i64)>) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n").into_bytes();
    let part = part.map_or(b"N".to_vec(), |(offset, count)| tuple(&[text("part"), number(offset), number(count)]));
    [&tuple(&[text("storage"), class, text(key), text("cpu"), number(count), part])[..], b"Q"].concat()
}

/// Returns a tensor with one axis.
fn tensor(storage: &[u8], offset: i64, size: i64) -> Vec<u8> {
    let args = tuple(&[storage.to_vec(), number(offset), tuple(&[number(size)]), tuple(&[number(1)])]);
    [b"ctorch._utils\n_rebuild_tensor\n", &args[..], b"R"].concat()
}

/// Parts of a file.
#[derive(Clone)]
struct File {
    version: Vec<u8>,
    system: Vec<u8>,
    object: Vec<u8>,
    keys: Vec<u8>,
    /// Number of elements and elements of each storage.
    data: Vec<(i64, Vec<u8>)>,
}

impl File {
    fn bytes(&self) -> Vec<u8> {
        let pickles = [&self.version, &self.system, &self.object, &self.keys].map(|value| pickle(value)).concat();
        let data: Vec<_> = self.data.iter().map(|(count, bytes)| [&count.to_le_bytes()[..], bytes].concat()).collect();
        [MAGIC, &pickles, &data.concat()].concat()
    }
}

/// Returns a file with two tensors of five floats, each in its own storage, and one more storage of an optimizer's
/// state.
fn good() -> File {
    let float = |key: &str| tensor(&storage("FloatStorage", key, 5, None), 0, 5);
    let state = dictionary(&[("exp_avg", tensor(&storage("HalfStorage", "b", 3, None), 0, 3))]);
    File {
        version: number(1001),
        system: dictionary(&[("little_endian", b"\x88".to_vec())]),
        object: dictionary(&[("v", float("a")), ("w", float("c")), ("optimizer", state)]),
        keys: list(&[text("a"), text("b"), text("c")]),
        data: vec![(5, vec![1; 20]), (3, vec![2; 6]), (5, vec![3; 20])],
    }
}

/// Returns a file with one tensor in one storage of floats.
fn single(tensor: Vec<u8>, count: i64) -> File {
    let data = vec![(count, vec![1; 4 * count as usize])];
    File { object: dictionary(&[("w", tensor)]), keys: list(&[text("a")]), data, ..good() }
}

#[test]
fn every_rule_is_kept() {
    assert_eq!(read_all("x.pt", &good().bytes()).ok(), Some(2));
    assert_eq!(read_all("x.other", &good().bytes()).ok(), Some(2), "content decides, not the name");
    let with_data = |index: usize, count: i64, bytes: Vec<u8>| {
        let mut file = good();
        file.data[index] = (count, bytes);
        file
    };
    let with_keys =
        |keys: &[&str]| File { keys: list(&keys.iter().map(|key| text(key)).collect::<Vec<_>>()), ..good() };
    let floats = |count, part| storage("FloatStorage", "a", count, part);
    let unknown = storage("TriStorage", "a", 1, None);
    for (file, tensor_name, word) in [
        (File { version: number(1002), ..good() }, None, "version of its protocol"),
        (File { version: text("1001"), ..good() }, None, "version of its protocol"),
        (File { system: dictionary(&[("little_endian", b"\x89".to_vec())]), ..good() }, None, "big-endian"),
        (File { system: dictionary(&[]), ..good() }, None, "little_endian"),
        (File { system: number(1), ..good() }, None, "little_endian"),
        (File { object: number(1), ..good() }, None, "no state dict"),
        (File { object: dictionary(&[]), ..good() }, None, "no tensors"),
        (File { object: b"X\xff\xff\xff\xffabc".to_vec(), ..good() }, None, "beyond its end"),
        (File { keys: number(3), ..good() }, None, "not a list of names"),
        (File { keys: list(&[number(3)]), ..good() }, None, "not a list of names"),
        (with_keys(&["a", "b"]), Some("w"), "its storage c is missing"),
        (with_keys(&["a", "b", "a"]), Some("v"), "storage a: it is listed twice"),
        (with_keys(&["a", "b", "b"]), None, "storage b: it is listed twice"),
        (with_keys(&["a", "b", "d"]), None, "storage d: it is listed, but not described"),
        (with_keys(&["a", "c", "b"]), Some("w"), "storage c: its header says 5 elements, but its storage has 3"),
        (with_data(0, 4, vec![1; 16]), Some("v"), "its header says 5 elements, but its storage has 4"),
        (with_data(1, -3, vec![1; 6]), None, "storage b: its header says 3 elements, but its storage has -3"),
        (with_data(2, 5, vec![1; 19]), Some("w"), "beyond the file, which has only 19 more bytes"),
        (with_data(1, i64::MAX, vec![1; 6]), None, "its storage has 9223372036854775807"),
        (single(tensor(&floats(5, None), 1, 5), 5), Some("w"), "beyond its storage of 20 bytes"),
        (single(tensor(&floats(5, None), 0, i64::MAX), 5), Some("w"), "beyond its storage"),
        (single(tensor(&floats(5, None), -1, 5), 5), Some("w"), "description is broken"),
        (single(tensor(&floats(-5, None), 0, 5), 5), Some("w"), "description is broken"),
        (single(tensor(&floats(5, Some((1, 4))), 0, 5), 5), Some("w"), "beyond its storage of 16 bytes"),
        (single(tensor(&floats(5, Some((2, 4))), 0, 1), 5), Some("w"), "4 elements from element 2 of another"),
        (single(tensor(&floats(5, Some((i64::MAX, 4))), 0, 1), 5), Some("w"), "of another, which has 20 bytes"),
        (single(tensor(&unknown, 0, 1), 1), Some("w"), "description is broken"),
    ] {
        let error = read_all("x.pt", &file.bytes()).expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(tensor_of(&error), tensor_name, "{error}");
    }
}

#[test]
fn impossible_storages_are_rejected() {
    // Counts in pickle and file that are as large as possible without overflow, and one that overflows.
    for count in [i64::MAX, 1 << 61, 1 << 40] {
        let mut file = single(tensor(&storage("FloatStorage", "a", count, None), 0, 5), 5);
        file.data[0].0 = count;
        let error = read_all("x.pt", &file.bytes()).expect_err("not there");
        assert!(error.to_string().contains("beyond the file") && tensor_of(&error) == Some("w"), "{error}");
    }
    // Two tensors that disagree about their shared storage.
    for (class, count) in [("FloatStorage", 4), ("HalfStorage", 5)] {
        let other = tensor(&storage(class, "a", count, None), 0, 1);
        let mut file = good();
        file.object = dictionary(&[("v", tensor(&storage("FloatStorage", "a", 5, None), 0, 5)), ("w", other)]);
        let error = read_all("x.pt", &file.bytes()).expect_err("one lies");
        assert!(error.to_string().contains("storage a: it is declared as"), "{error}");
    }
    // An optimizer's storage with unknown elements: the storages after it cannot be located.
    let mut file = good();
    let state = dictionary(&[("exp_avg", tensor(&storage("TriStorage", "b", 3, None), 0, 3))]);
    file.object = dictionary(&[("w", tensor(&storage("FloatStorage", "a", 5, None), 0, 5)), ("optimizer", state)]);
    let error = read_all("x.pt", &file.bytes()).expect_err("unknown").to_string();
    assert!(error.contains("storage b: it is of unknown type TriStorage"), "{error}");
}

#[test]
fn a_name_may_not_appear_twice() {
    let mut file = good();
    let one = tensor(&storage("FloatStorage", "a", 5, None), 0, 5);
    file.object = dictionary(&[("w", one.clone()), ("w", one)]);
    file.keys = list(&[text("a")]);
    let error = read_all("x.pt", &file.bytes()).expect_err("twice");
    assert!(error.to_string().contains("appears twice") && tensor_of(&error) == Some("w"), "{error}");
}

#[test]
fn elements_are_read_in_place() {
    // A gigabyte that takes no space on the disk, followed by five floats.
    let count = 1i64 << 28;
    let mut file = good();
    file.object = dictionary(&[
        ("large", tensor(&storage("FloatStorage", "a", count, None), 0, count)),
        ("small", tensor(&storage("FloatStorage", "b", 5, None), 0, 5)),
    ]);
    (file.keys, file.data) = (list(&[text("a"), text("b")]), vec![(count, Vec::new())]);
    let path = tempfile::tempdir().expect("a directory");
    let path = path.path().join("large.pt");
    let bytes = file.bytes();
    std::fs::write(&path, &bytes).expect("written");
    let open = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    open.set_len(bytes.len() as u64 + 4 * count as u64).expect("lengthened");
    let end = [&5u64.to_le_bytes()[..], &[1.0f32, 2.0, 3.0, 4.0, 5.0].map(f32::to_le_bytes).concat()].concat();
    std::io::Write::write_all(&mut std::fs::OpenOptions::new().append(true).open(&path).expect("opened"), &end)
        .expect("written");
    LARGEST.set(0);
    let checkpoint = TensorFiles::open(&path).expect("opened");
    assert_eq!(checkpoint.info("large").expect("there").shape, [count as usize]);
    assert_eq!(checkpoint.tensor("small").expect("read").to_vec::<f32>().expect("floats"), [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(LARGEST.get() < allowed(), "{} bytes at once", LARGEST.get());
}

#[test]
fn every_truncation_is_an_error() {
    for name in FIXTURES {
        let bytes = std::fs::read(fixture(name)).expect("read");
        for length in 0..bytes.len() {
            let error = read_all("x.pt", &bytes[..length]).expect_err(name);
            assert!(!matches!(error, WeightsError::File(_)), "{error}");
        }
    }
}

#[test]
fn every_byte_may_be_wrong() {
    for name in FIXTURES {
        let bytes = std::fs::read(fixture(name)).expect("read");
        for position in 0..bytes.len() {
            for change in [1 << (position % 8), 0xff] {
                let mut changed = bytes.clone();
                changed[position] ^= change;
                let _ = read_all("x.pt", &changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_streams(changes in prop::collection::vec(change(), 1..6), file in 0..FIXTURES.len()) {
        let bytes = std::fs::read(fixture(FIXTURES[file])).expect("read");
        let _ = read_all("x.pt", &changed(bytes, &changes));
    }

    #[test]
    fn arbitrary_streams(
        class in "(Float|Half|Long|Bool|QInt8|ComplexDouble|Untyped|Odd)Storage",
        stored in prop_oneof![0..40i64, any::<i64>()],
        claimed in prop::option::of(any::<i64>()),
        part in prop::option::of((prop_oneof![0..20i64, any::<i64>()], prop_oneof![0..20i64, any::<i64>()])),
        (offset, size) in (prop_oneof![0..20i64, any::<i64>()], prop_oneof![0..20i64, any::<i64>()]),
        data in 0..320usize,
    ) {
        let mut file = single(tensor(&storage(&class, "a", claimed.unwrap_or(stored), part), offset, size), 0);
        file.data = vec![(stored, vec![1; data])];
        let _ = read_all("x.pt", &file.bytes());
    }
}
