//! Metadata values: integers, floats, booleans, strings, and arrays of these.

use super::reader::Reader;

/// Maximum nesting depth of arrays; llama.cpp itself never nests them.
const DEEPEST: usize = 8;

/// Value types of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// All types, ordered by their numbers in the format.
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Reads the number of a type.
    ///
    /// # Errors
    /// Returns the reason, if the number is unknown.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, String> {
        let number = reader.u32()?;
        let known = usize::try_from(number).ok().and_then(|number| Self::ALL.get(number).copied());
        known.ok_or_else(|| format!("its value is of type {number}; 0 to 12 are known"))
    }

    /// Returns the size of a value in bytes; for a string or an array, the minimum size: the fields before the content.
    fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

/// A value of a GGUF file's metadata. Strings and arrays borrow from the mapped file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum GgufValue<'a> {
    /// An unsigned integer of 8 to 64 bits.
    Unsigned(u64),
    /// A signed integer of 8 to 64 bits.
    Signed(i64),
    /// A 32-bit or 64-bit float.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A string.
    String(&'a str),
    /// An array of values of one type.
    Array(GgufArray<'a>),
}

impl<'a> GgufValue<'a> {
    /// Returns an integer of any width; `None` if the value is negative or of another type.
    pub fn integer(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// Returns the float; `None` for other types.
    pub fn float(&self) -> Option<f64> {
        if let Self::Float(value) = *self { Some(value) } else { None }
    }

    /// Returns the boolean; `None` for other types.
    pub fn boolean(&self) -> Option<bool> {
        if let Self::Boolean(value) = *self { Some(value) } else { None }
    }

    /// Returns the string; `None` for other types.
    pub fn string(&self) -> Option<&'a str> {
        if let Self::String(value) = *self { Some(value) } else { None }
    }

    /// Returns the array; `None` for other types.
    pub fn array(&self) -> Option<GgufArray<'a>> {
        if let Self::Array(value) = *self { Some(value) } else { None }
    }
}

/// An array in a GGUF file's metadata. Its values are read from the mapped file on request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GgufArray<'a> {
    element: ValueType,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> GgufArray<'a> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if the array has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the values in order.
    pub fn iter(&self) -> impl Iterator<Item = GgufValue<'a>> + use<'a> {
        let (mut reader, element) = (Reader::new(self.bytes, 0), self.element);
        (0..self.count).map_while(move |_| read(&mut reader, element).ok())
    }

    /// Returns `of` of all values; `None` if it returns `None` for any of them.
    pub(super) fn all<T>(&self, of: impl Fn(&GgufValue<'a>) -> Option<T>) -> Option<Vec<T>> {
        let values: Vec<T> = self.iter().map(|value| of(&value)).collect::<Option<_>>()?;
        (values.len() == self.count).then_some(values)
    }
}

/// Validates a value and moves past it.
///
/// # Errors
/// Returns the reason: a length beyond the end, a string that is not UTF-8, a boolean that is neither 0 nor 1, an
/// unknown type, or arrays nested too deep.
pub(super) fn check(reader: &mut Reader<'_>, kind: ValueType) -> Result<(), String> {
    check_within(reader, kind, 0)
}

fn check_within(reader: &mut Reader<'_>, kind: ValueType, depth: usize) -> Result<(), String> {
    match kind {
        ValueType::Bool => check_booleans(reader.take(1)?),
        ValueType::String => reader.text(u64::MAX).map(drop),
        ValueType::Array if depth == DEEPEST => Err(format!("its arrays nest deeper than {DEEPEST} levels")),
        ValueType::Array => {
            let (element, count) = array_head(reader)?;
            match element {
                ValueType::Bool => check_booleans(reader.take(count as u64)?),
                ValueType::String | ValueType::Array => (0..count).try_for_each(|index| {
                    check_within(reader, element, depth + 1).map_err(|reason| format!("element {index}: {reason}"))
                }),
                // No overflow: `array_head` has compared the count with the remaining bytes.
                number => reader.take((count * number.size()) as u64).map(drop),
            }
        }
        number => reader.take(number.size() as u64).map(drop),
    }
}

fn check_booleans(bytes: &[u8]) -> Result<(), String> {
    match bytes.iter().find(|&&byte| byte > 1) {
        Some(byte) => Err(format!("it has the boolean {byte}, which is neither 0 nor 1")),
        None => Ok(()),
    }
}

/// Reads the element type and the number of elements of an array. The number is checked against the remaining bytes.
fn array_head(reader: &mut Reader<'_>) -> Result<(ValueType, usize), String> {
    let element = ValueType::read(reader)?;
    let (count, size, left) = (reader.u64()?, element.size(), reader.left());
    usize::try_from(count).ok().filter(|&count| count <= left / size).map(|count| (element, count)).ok_or_else(|| {
        format!(
            "its array claims {count} elements of at least {size} bytes, but the file has only {left} more (truncated?)"
        )
    })
}

/// Reads a value. Succeeds for values accepted by [`check`], unless the file has changed since.
pub(super) fn read<'a>(reader: &mut Reader<'a>, kind: ValueType) -> Result<GgufValue<'a>, String> {
    Ok(match kind {
        ValueType::U8 => GgufValue::Unsigned(u8::from_le_bytes(reader.array()?).into()),
        ValueType::U16 => GgufValue::Unsigned(u16::from_le_bytes(reader.array()?).into()),
        ValueType::U32 => GgufValue::Unsigned(u32::from_le_bytes(reader.array()?).into()),
        ValueType::U64 => GgufValue::Unsigned(u64::from_le_bytes(reader.array()?)),
        ValueType::I8 => GgufValue::Signed(i8::from_le_bytes(reader.array()?).into()),
        ValueType::I16 => GgufValue::Signed(i16::from_le_bytes(reader.array()?).into()),
        ValueType::I32 => GgufValue::Signed(i32::from_le_bytes(reader.array()?).into()),
        ValueType::I64 => GgufValue::Signed(i64::from_le_bytes(reader.array()?)),
        ValueType::F32 => GgufValue::Float(f32::from_le_bytes(reader.array()?).into()),
        ValueType::F64 => GgufValue::Float(f64::from_le_bytes(reader.array()?)),
        ValueType::Bool => GgufValue::Boolean(reader.array()? != [0]),
        ValueType::String => GgufValue::String(reader.text(u64::MAX)?),
        ValueType::Array => {
            let mut end = reader.clone();
            check(&mut end, ValueType::Array)?;
            let (element, count) = array_head(reader)?;
            let bytes = reader.take((end.position() - reader.position()) as u64)?;
            GgufValue::Array(GgufArray { element, count, bytes })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the header of an array: element type and count.
    fn head(element: u32, count: u64) -> Vec<u8> {
        [&element.to_le_bytes()[..], &count.to_le_bytes()].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
    }

    fn array(bytes: &[u8]) -> Result<GgufArray<'_>, String> {
        let mut reader = Reader::new(bytes, 0);
        check(&mut Reader::new(bytes, 0), ValueType::Array)?;
        let value = read(&mut reader, ValueType::Array)?;
        assert_eq!(reader.left(), 0);
        value.array().ok_or_else(|| "no array".into())
    }

    #[test]
    fn arrays_within_arrays() {
        let words = [head(8, 2), text("ä"), text("")].concat();
        let numbers = [head(5, 3), (-1i32).to_le_bytes().to_vec(), 7i32.to_le_bytes().to_vec(), vec![0; 4]].concat();
        let bytes = [head(9, 2), words, numbers].concat();
        let outer = array(&bytes).expect("valid");
        let inner: Vec<_> = outer.iter().filter_map(|value| value.array()).collect();
        assert_eq!((outer.len(), inner.len()), (2, 2));
        assert_eq!(inner[0].all(GgufValue::string).as_deref(), Some(&["ä", ""][..]));
        let signed: Vec<_> = inner[1].iter().collect();
        assert_eq!(signed, [GgufValue::Signed(-1), GgufValue::Signed(7), GgufValue::Signed(0)]);
        assert_eq!(inner[1].all(GgufValue::integer), None, "-1 is none");
        assert!(array(&head(9, 0)).expect("valid").is_empty());
    }

    #[test]
    fn arrays_with_inconsistent_headers() {
        let deep = |levels: usize| [head(9, 1).repeat(levels - 1), head(0, 0)].concat();
        assert!(array(&deep(DEEPEST)).is_ok());
        for (bytes, word) in [
            (deep(DEEPEST + 1), "deeper than"),
            (head(9, 1).repeat(100_000), "deeper than"),
            (head(0, u64::MAX), "claims 18446744073709551615 elements"),
            (head(12, 1 << 61), "claims 2305843009213693952 elements"),
            (head(9, 1), "claims 1 elements of at least 12 bytes"),
            ([head(7, 2), vec![1, 2]].concat(), "the boolean 2"),
            (head(13, 0), "type 13"),
            ([head(8, 1), u64::MAX.to_le_bytes().to_vec()].concat(), "element 0: it claims 18446744073709551615"),
            ([head(8, 1), 2u64.to_le_bytes().to_vec(), vec![0xc3, 0x28]].concat(), "element 0: its text is not UTF-8"),
        ] {
            let reason = array(&bytes).expect_err(word);
            assert!(reason.contains(word), "{reason}");
        }
    }
}
