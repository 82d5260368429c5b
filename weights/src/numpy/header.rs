//! The header of an array: magic bytes, a version, and a Python dictionary as text.

use super::Number;
use super::dictionary::{Literal, dictionary};
use crate::entry::StoredDtype;

/// The first bytes of every array.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum length of the header text in bytes; numpy itself rejects longer texts unless the file is trusted.
const LONGEST_TEXT: usize = 10_000;

/// Maximum length of the header in bytes: magic bytes, two of version, up to four of length, and the text.
pub(super) const LONGEST: usize = MAGIC.len() + 2 + 4 + LONGEST_TEXT;

/// A header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// numpy's name of the element type, such as `<f4`; `None` for structured types.
    type_name: Option<String>,
    /// True for column-major (Fortran) order.
    pub(super) is_fortran: bool,
    pub(super) shape: Vec<usize>,
    /// Length of the header, which is also the position of the data.
    pub(super) length: usize,
}

impl Header {
    /// Reads the header from the first [`LONGEST`] bytes of an array, or all bytes of a shorter one.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("it does not start like an .npy array")?;
        let (start, size) = match *rest {
            [1, _, a, b, ..] => (4, usize::from(u16::from_le_bytes([a, b]))),
            [2 | 3, _, a, b, c, d, ..] => (6, u32::from_le_bytes([a, b, c, d]) as usize),
            [1..=3, ..] | [] => return Err("it ends within its header".into()),
            [version, ..] => return Err(format!("it is of version {version} of the .npy format; 1 to 3 are known")),
        };
        if size > LONGEST_TEXT {
            return Err(format!("its header claims {size} bytes; no array of numbers needs more than {LONGEST_TEXT}"));
        }
        let text = rest.get(start..start + size).ok_or("it ends within its header")?;
        // Non-ASCII characters occur only in field names, which are not read.
        let text = String::from_utf8_lossy(text);
        let [type_name, order, shape] = dictionary(&text)
            .ok_or("its header is not a dictionary of `descr`, `fortran_order` and `shape`, each once")?;
        let type_name = match type_name {
            Literal::Text(name) => Some(name.to_string()),
            Literal::List => None,
            _ => return Err("its `descr` does not name a type".into()),
        };
        let Literal::Truth(is_fortran) = order else {
            return Err("its `fortran_order` is neither True nor False".into());
        };
        let Literal::Numbers(shape) = shape else { return Err("its `shape` is not a tuple of sizes".into()) };
        Ok(Self { type_name, is_fortran, shape, length: MAGIC.len() + start + size })
    }

    /// Returns the element type.
    ///
    /// # Errors
    /// Returns a description of the unsupported elements, and the remedy.
    pub(super) fn number(&self) -> Result<Number, String> {
        let Some(name) = &self.type_name else {
            return Err("has several fields in each element; in Python, save each field as a separate array".into());
        };
        let (is_reversed, code) = match name.strip_prefix('>') {
            Some(code) => (true, code),
            None => (false, name.trim_start_matches(['<', '|', '='])),
        };
        let (dtype, size) = match code {
            "f8" => (StoredDtype::F64, 8),
            "f4" => (StoredDtype::F32, 4),
            "f2" => (StoredDtype::F16, 2),
            "i8" => (StoredDtype::I64, 8),
            "i4" => (StoredDtype::I32, 4),
            "i2" => (StoredDtype::I16, 2),
            "i1" => (StoredDtype::I8, 1),
            "u8" => (StoredDtype::U64, 8),
            "u4" => (StoredDtype::U32, 4),
            "u2" => (StoredDtype::U16, 2),
            "u1" => (StoredDtype::U8, 1),
            "b1" => (StoredDtype::BOOL, 1),
            // A complex number is two 4-byte floats.
            "c8" => (StoredDtype::C64, 4),
            code => return Err(no_number(name, code)),
        };
        Ok(Number { dtype, reversed: if is_reversed { size } else { 1 } })
    }
}

/// Returns the message about an unsupported type.
fn no_number(name: &str, code: &str) -> String {
    let name = name.escape_debug();
    match code.chars().next() {
        Some('O') => format!(
            "has pickled Python objects (`{name}`), which are never read; in Python, save each as an array of numbers"
        ),
        Some('V') => format!(
            "holds raw bytes (`{name}`), as which numpy saves types that it does not know (V2 is most likely the \
             bfloat16 of ml_dtypes); in Python, save array.view(ml_dtypes.bfloat16).astype('float32')"
        ),
        Some('U' | 'S') => format!("has text (`{name}`) instead of numbers; in Python, save the archive without it"),
        _ => format!("is of type `{name}`, which is not read; in Python, save array.astype('float32')"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u8, text: &str) -> Vec<u8> {
        let length = (text.len() as u32).to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length };
        [MAGIC, &[version, 0], length, text.as_bytes()].concat()
    }

    #[test]
    fn every_spelling_of_numpy_is_read() {
        for (text, type_name, is_fortran, shape) in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }     \n", Some("<f4"), false, &[3, 4][..]),
            ("{'shape': (3,), 'fortran_order': True, 'descr': '|b1'}", Some("|b1"), true, &[3]),
            ("{\"descr\":\"<i8\",\"fortran_order\":False,\"shape\":()}", Some("<i8"), false, &[]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 0L), }\n", Some("<f4"), false, &[3, 0]),
            (
                "{'descr': [('a]\u{e4}', '<f4', (2,)), ('b', [])], 'fortran_order': False, 'shape': (1,)}",
                None,
                false,
                &[1],
            ),
        ] {
            for version in 1..=3 {
                let bytes = header(version, text);
                let expected = Header {
                    type_name: type_name.map(Into::into),
                    is_fortran,
                    shape: shape.into(),
                    length: bytes.len(),
                };
                assert_eq!(Header::read(&bytes), Ok(expected));
                let cut = (0..bytes.len()).find(|&length| Header::read(&bytes[..length]).is_ok());
                assert_eq!(cut, None, "{text}");
            }
        }
    }

    #[test]
    fn nothing_else_is() {
        let about = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}");
        for (text, word) in [
            (String::new(), "dictionary"),
            ("{}".into(), "dictionary"),
            ("{'descr': '<f4'".into(), "dictionary"),
            (about("(1,)") + "x", "dictionary"),
            (about("(1,), 'shape': (1,)"), "dictionary"),
            (about("(1,), 'more': True"), "dictionary"),
            (about("(3)"), "dictionary"),
            (about("(-3, 1)"), "dictionary"),
            (about("(+3, 1)"), "dictionary"),
            (about("(3, , 1)"), "dictionary"),
            (about("(99999999999999999999, 1)"), "dictionary"),
            (about("True"), "tuple"),
            (about("[1, 2]"), "tuple"),
            (about("(1,)").replace("False", "'no'"), "fortran_order"),
            (about("(1,)").replace("'<f4'", "True"), "descr"),
            (about("(1,)").replace("<f4", "<\\\\f4"), "dictionary"),
            (about(&"[".repeat(9000)), "dictionary"),
        ] {
            let reason = Header::read(&header(1, &text)).expect_err(word);
            assert!(reason.contains(word), "{text}: {reason}");
        }
        assert!(Header::read(b"PK").is_err_and(|reason| reason.contains("start")));
        assert!(Header::read(&header(4, "{}")).is_err_and(|reason| reason.contains("version 4")));
        for bytes in [&b"\x93NUMPY\x02\0\xff\xff\xff\xff{"[..], b"\x93NUMPY\x01\0\xff\xff{"] {
            assert!(Header::read(bytes).is_err_and(|reason| reason.contains("claims")));
        }
    }

    #[test]
    fn types_by_their_names() {
        let number = |name: &str| {
            Header { type_name: Some(name.into()), is_fortran: false, shape: Vec::new(), length: 0 }.number()
        };
        for (name, dtype, reversed) in [
            ("<f4", StoredDtype::F32, 1),
            (">f8", StoredDtype::F64, 8),
            ("=i2", StoredDtype::I16, 1),
            ("|u1", StoredDtype::U8, 1),
            (">c8", StoredDtype::C64, 4),
        ] {
            assert_eq!(number(name), Ok(Number { dtype, reversed }), "{name}");
        }
        for (name, word) in
            [("|O", "objects"), ("<V2", "bfloat16"), ("<U7", "text"), ("<f16", "float32"), ("", "not read")]
        {
            let reason = number(name).expect_err(word);
            assert!(reason.contains(word), "{reason}");
        }
    }
}
