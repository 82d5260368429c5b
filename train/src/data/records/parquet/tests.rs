use serde_json::Value as Json;
use std::{
    fs,
    path::{Path, PathBuf},
};

use super::super::{Record, TableFormat, Value, open};

/// A file of tools/fixtures/records.py.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records")).join(name)
}

/// Rows as pyarrow reads them.
fn expected(name: &str) -> Vec<Json> {
    let all: Json = serde_json::from_slice(&fs::read(fixture("expected.json")).expect("a file")).expect("JSON");
    all[name].as_array().expect("rows").clone()
}

fn read(file: &Path, columns: &[&str]) -> Result<Vec<Record>, String> {
    let records = open(file, columns, TableFormat::default()).map_err(|error| error.to_string())?;
    records.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

const ALL: [&str; 8] = ["id", "text", "second", "label", "stars", "score", "fair", "tags"];

#[test]
fn every_codec_and_encoding_gives_the_values_of_pyarrow() {
    let rows = expected("snappy");
    for name in ["snappy", "zstd", "gzip", "lz4", "none", "v2", "plain"] {
        let found = read(&fixture(&format!("{name}.parquet")), &ALL).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.len(), rows.len(), "{name}");
        for (i, (record, row)) in found.iter().zip(&rows).enumerate() {
            assert!(record.place.to_string().ends_with(&format!("{name}.parquet, row {}", i + 1)));
            for (column, value) in ALL.iter().zip(&record.values) {
                match value {
                    // pyarrow prints an f32 with the digits of an f64.
                    Value::Number(number) if *column == "score" => {
                        assert_eq!(
                            number.as_f64().expect("a number") as f32,
                            row[*column].as_f64().expect("one") as f32
                        );
                    }
                    value => assert_eq!(*value, Value::from(row[*column].clone()), "{name}, row {i}, {column}"),
                }
            }
        }
    }
}

#[test]
fn columns_go_by_name_or_number_and_in_the_order_asked_for() {
    let found = read(&fixture("snappy.parquet"), &["label", "2", "label"]).expect("readable");
    assert_eq!(found[0].values, [text("bad"), text("the morning was fine 0"), text("bad")]);
    let error = read(&fixture("snappy.parquet"), &["content"]).expect_err("refused");
    assert!(error.contains("snappy.parquet: there is no column `content`; the file has: id, text, second"), "{error}");
}

#[test]
fn nulls_are_values() {
    let found = read(&fixture("null.parquet"), &["text", "label"]).expect("readable");
    assert_eq!(found[3].values, [text("d"), Value::Null]);
    assert_eq!(found[4].values, [Value::Null, text("y")]);
    assert_eq!(found[5].values, [text("f"), text("x")]);
}

#[test]
fn numbers_of_classes_become_their_names() {
    let found = read(&fixture("classes.parquet"), &["text", "label", "topics"]).expect("readable");
    let labels: Vec<_> = found.iter().map(|record| record.values[1].clone()).collect();
    let class = |number: u64, name: &str| Value::Class { number, name: name.into() };
    assert_eq!(labels, [class(0, "World"), class(1, "Sports"), class(2, "Business"), class(1, "Sports")]);
    let topics: Vec<_> = found.iter().map(|record| record.values[2].clone()).collect();
    let expected = [vec![class(0, "war")], vec![class(1, "ball")], vec![class(2, "money"), class(1, "ball")], vec![]];
    assert_eq!(topics, expected.map(Value::List));
    let error = read(&fixture("unlabelled.parquet"), &["label"]).expect_err("refused");
    assert!(error.contains("unlabelled.parquet, row 1: \"label\": the label is -1"), "{error}");
    assert!(read(&fixture("unlabelled.parquet"), &["text"]).is_ok());
}

#[test]
fn images_are_bytes_and_a_path() {
    let found = read(&fixture("images.parquet"), &["image", "label"]).expect("readable");
    assert_eq!(found.len(), 4);
    let [image, label] = &found[1].values[..] else { panic!("two columns") };
    assert_eq!((image.field("path"), label.class_number()), (Some(&text("250.png")), Some(1)));
    assert!(matches!(image.field("bytes"), Some(Value::Bytes(bytes)) if bytes.starts_with(b"\x89PNG")));
}

#[test]
fn truncated_files_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("a.parquet");
    for name in ["classes.parquet", "v2.parquet"] {
        let whole = fs::read(fixture(name)).expect("a file");
        for length in (0..whole.len()).step_by(3) {
            fs::write(&file, &whole[..length]).expect("written");
            let error = read(&file, &["text"]).expect_err("refused");
            assert!(error.contains("a.parquet"), "{error}");
        }
    }
}

/// Bytes of a file inverted: an error or other values, never a panic or a hang.
#[test]
fn damaged_files_end_in_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("a.parquet");
    for (name, columns, step) in [("classes.parquet", &["text", "label", "topics"][..], 1), ("v2.parquet", &ALL, 4)] {
        let whole = fs::read(fixture(name)).expect("a file");
        for at in (0..whole.len()).step_by(step) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            fs::write(&file, &bytes).expect("written");
            if let Err(error) = read(&file, columns) {
                assert!(error.contains("a.parquet"), "{name}, byte {at}: {error}");
            }
        }
    }
}

#[test]
fn a_page_with_a_checksum_is_checked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("a.parquet");
    let mut bytes = fs::read(fixture("plain.parquet")).expect("a file");
    let at = bytes.windows(7).position(|window| window == b"morning").expect("a text");
    bytes[at] ^= 1;
    fs::write(&file, &bytes).expect("written");
    let error = read(&file, &["text"]).expect_err("refused");
    assert!(error.contains("a.parquet, row 1") && error.contains("checksum"), "{error}");
}

#[test]
fn other_codecs_are_named() {
    let error = read(&fixture("brotli.parquet"), &["text"]).expect_err("refused");
    assert!(error.contains("brotli.parquet: it is compressed with BROTLI, but grove reads only Snappy"), "{error}");
}

#[test]
fn other_files_are_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("a.parquet");
    for (content, words) in [
        (&b""[..], "not a Parquet file"),
        (b"text,label\na,b\n", "not a Parquet file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"PAR1", "its end is missing"),
        (b"PAR1\xff\xff\xff\x7fPAR1", "longer than the file"),
        // A schema of one group of 2^31 - 1 fields, for which the crate would allocate memory.
        (b"PAR1\x15\x02\x19\x1c\x48\x01a\x15\xfe\xff\xff\xff\x0f\0\0\x0f\0\0\0PAR1", "claims 2147483647 fields"),
    ] {
        fs::write(&file, content).expect("written");
        let error = read(&file, &["text"]).expect_err("refused");
        assert!(error.contains("a.parquet: ") && error.contains(words), "{error}");
    }
    assert!(read(&directory.path().join("none.parquet"), &["text"]).expect_err("absent").starts_with("cannot open "));
}
