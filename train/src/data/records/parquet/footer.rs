//! Check of a footer's schema before the crate `parquet` reads it.
//!
//! The crate allocates as many fields as the schema claims, and descends into groups by recursion: a small hostile
//! footer would end the process. This module walks the footer in Thrift's compact protocol and compares these claims
//! with what the footer has. The crate reads a known field as the type that it should have, so a field of another type is an
//! error here: otherwise the two would read different schemas.

/// Maximum depth of groups in a schema, and of structures in the footer.
const MAX_DEPTH: usize = 64;

/// Checks the schema of a footer.
///
/// # Errors
/// The footer ends early, or its schema is malformed, claims fields that it does not have or is nested too deeply.
pub(super) fn check(footer: &[u8]) -> Result<(), String> {
    let mut thrift = Thrift { rest: footer };
    let mut last = 0;
    if thrift.field(&mut last)? == Some((VERSION, I32)) {
        thrift.skip(I32, 0)?;
        if thrift.field(&mut last)? == Some((SCHEMA, LIST)) {
            return check_schema(&mut thrift);
        }
    }
    Err("its footer does not begin with a version and a schema".into())
}

/// Field of `FileMetaData` with the version of the format.
const VERSION: u64 = 1;
/// Field of `FileMetaData` with the list of `SchemaElement`.
const SCHEMA: u64 = 2;
/// Field of `SchemaElement` with the number of children.
const NUM_CHILDREN: u64 = 5;
/// Types of the fields of `SchemaElement`, from 1 on. The last one is the union `LogicalType`.
const SCHEMA_ELEMENT: [u8; 10] = [I32, I32, I32, BINARY, I32, I32, I32, I32, I32, STRUCT];

/// Returns the types of the fields of a variant of `LogicalType`, from 1 on.
fn logical_type(variant: u64) -> &'static [u8] {
    match variant {
        // Decimal: scale and precision.
        5 => &[I32, I32],
        // Time and timestamp: whether they are adjusted to UTC, and the union `TimeUnit`.
        7 | 8 => &[TRUE, STRUCT],
        // Integer: width and sign.
        10 => &[BYTE, TRUE],
        // Variant, geometry, geography.
        16 => &[BYTE],
        17 => &[BINARY],
        18 => &[BINARY, I32],
        _ => &[],
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Checks the tree of groups, which the list has depth first.
fn check_schema(thrift: &mut Thrift<'_>) -> Result<(), String> {
    let (count, kind) = thrift.list()?;
    if kind != STRUCT {
        return Err("its schema is not a list of fields".into());
    }
    // Children that the open groups still lack.
    let mut open: Vec<u64> = vec![];
    for place in 0..count {
        let children = children(thrift)?;
        if children > count - place - 1 {
            return Err(format!("its schema claims {children} fields in a group, but has fewer"));
        }
        if let Some(lacking) = open.last_mut() {
            *lacking -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > MAX_DEPTH {
            return Err(format!("its schema is nested more than {MAX_DEPTH} groups deep"));
        }
    }
    Ok(())
}

/// Reads a `SchemaElement` and returns its number of children.
fn children(thrift: &mut Thrift<'_>) -> Result<u64, String> {
    let (mut last, mut children) = (0, 0);
    while let Some((id, kind)) = thrift.field(&mut last)? {
        check_type(id, kind, &SCHEMA_ELEMENT)?;
        match (id, kind) {
            (NUM_CHILDREN, _) => {
                let claimed = unzigzag(thrift.varint()?);
                children = u64::try_from(claimed).map_err(|_| "its schema has a negative number of fields")?;
            }
            (_, STRUCT) if id == SCHEMA_ELEMENT.len() as u64 => check_union(thrift, logical_type)?,
            _ => thrift.skip(kind, 0)?,
        }
    }
    Ok(children)
}

/// Checks a union, which is a structure with a single field, itself a structure. `types` has those of each variant.
fn check_union(thrift: &mut Thrift<'_>, types: fn(u64) -> &'static [u8]) -> Result<(), String> {
    let mut last = 0;
    let (Some((variant, STRUCT)), mut member) = (thrift.field(&mut last)?, 0) else {
        return Err("its schema has a malformed type".into());
    };
    let types = types(variant);
    while let Some((id, kind)) = thrift.field(&mut member)? {
        check_type(id, kind, types)?;
        match kind {
            // `TimeUnit`, whose variants are empty.
            STRUCT if id <= types.len() as u64 => check_union(thrift, |_| &[])?,
            _ => thrift.skip(kind, 0)?,
        }
    }
    match thrift.field(&mut last)? {
        None => Ok(()),
        Some(_) => Err("its schema has a field of two types".into()),
    }
}

/// Checks the type of a field of a structure. Fields that the structure does not have are skipped by every reader.
fn check_type(id: u64, kind: u8, types: &[u8]) -> Result<(), String> {
    let kind = if kind == FALSE { TRUE } else { kind };
    match types.get(id as usize - 1) {
        Some(&expected) if expected != kind => Err("its schema has a value of a wrong type".into()),
        _ => Ok(()),
    }
}

/// Reader of Thrift's compact protocol.
struct Thrift<'a> {
    rest: &'a [u8],
}

impl Thrift<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let (&byte, rest) = self.rest.split_first().ok_or("its footer ends early")?;
        self.rest = rest;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("its footer has a number of more than 64 bits".into())
    }

    /// Reads the id and the type of a structure's next field. Returns `None` at its end. Ids increase from 1 on.
    fn field(&mut self, last: &mut u64) -> Result<Option<(u64, u8)>, String> {
        let head = self.byte()?;
        let (delta, kind) = (head >> 4, head & 0x0f);
        if kind == 0 {
            return Ok(None);
        }
        if delta == 0 {
            return Err("its footer has fields in another order".into());
        }
        *last += u64::from(delta);
        Ok(Some((*last, kind)))
    }

    /// Reads the number and the type of a list's elements, each of which has at least one byte.
    fn list(&mut self) -> Result<(u64, u8), String> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        self.fits(count)?;
        Ok((count, head & 0x0f))
    }

    fn fits(&self, count: u64) -> Result<(), String> {
        match count > self.rest.len() as u64 {
            true => Err(format!("its footer claims {count} items, but has {} bytes left", self.rest.len())),
            false => Ok(()),
        }
    }

    fn skip_bytes(&mut self, count: u64) -> Result<(), String> {
        self.fits(count)?;
        self.rest = &self.rest[count as usize..];
        Ok(())
    }

    /// Skips a value of a field.
    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("its footer is nested too deeply".into());
        }
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.skip_bytes(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_item(kind, depth + 1))
            }
            MAP => {
                let count = self.varint()?;
                self.fits(count)?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip_item(kinds >> 4, depth + 1)?;
                    self.skip_item(kinds & 0x0f, depth + 1)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            other => Err(format!("its footer has a value of the unknown type {other}")),
        }
    }

    /// Skips an item of a container. Booleans have a byte there, which the crate does not skip.
    fn skip_item(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        match kind {
            TRUE | FALSE => Err("its footer has a list of booleans".into()),
            _ => self.skip(kind, depth),
        }
    }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with version 1 and a schema of these numbers of children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xfc, children.len() as u8];
        for &count in children {
            bytes.extend([0x48, 1, b'a']); // field 4, the name
            bytes.extend([0x15, count * 2, 0]); // field 5
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn rejects_schemas_with_missing_fields() {
        assert_eq!(check(&footer(&[2, 0, 1, 0])), Ok(()));
        let error = check(&footer(&[9, 0])).expect_err("refused");
        assert!(error.contains("claims 9 fields"), "{error}");
        let error = check(&footer(&[1; 70])).expect_err("refused");
        assert!(error.contains("nested more than 64") || error.contains("claims 1"), "{error}");
        let whole = footer(&[2, 0, 0]);
        assert!((0..whole.len() - 1).all(|length| check(&whole[..length]).is_err()));
    }

    /// The crate reads the number of children whatever the type of its field, and the first list of the schema's id.
    #[test]
    fn rejects_fields_of_wrong_types() {
        let whole = footer(&[1, 0]);
        assert_eq!(check(&whole), Ok(()));
        // Type and id of: the version, the schema, the first name, the first number of children.
        for (at, byte, message) in [
            (0, 0x16, "does not begin"),
            (0, 0x18, "does not begin"),
            (2, 0x1a, "does not begin"),
            (2, 0x29, "does not begin"),
            (5, 0x46, "wrong type"),
            (8, 0x16, "wrong type"),
            (8, 0x05, "another order"),
        ] {
            let mut changed = whole.clone();
            assert_eq!(changed[at] & 0x0f, [5, 9, 8][usize::from(at == 2) + 2 * usize::from(at == 5)]);
            changed[at] = byte;
            let error = check(&changed).expect_err("refused");
            assert!(error.contains(message), "{at}: {error}");
        }
    }

    #[test]
    fn checks_logical_types() {
        let with = |logical: &[u8]| {
            let mut bytes = vec![0x15, 2, 0x19, 0x1c, 0x48, 1, b'a', 0x6c];
            bytes.extend(logical);
            bytes.extend([0, 0]);
            check(&bytes)
        };
        // A string; a timestamp in UTC, in microseconds; a decimal.
        assert_eq!(with(&[0x1c, 0, 0]), Ok(()));
        assert_eq!(with(&[0x8c, 0x11, 0x1c, 0x2c, 0, 0, 0, 0]), Ok(()));
        assert_eq!(with(&[0x5c, 0x15, 4, 0x15, 8, 0, 0]), Ok(()));
        for wrong in [
            &[0x18, 0, 0][..],
            &[0x5c, 0x16, 4, 0x15, 8, 0, 0],
            &[0x8c, 0x13, 1, 0, 0],
            // A unit that is a boolean, for which the crate reads the byte of an empty structure.
            &[0x8c, 0x11, 0x1c, 0x21, 0, 0, 0],
            &[0x1c, 0, 0x1c, 0, 0],
            &[0],
        ] {
            assert!(with(wrong).is_err(), "{wrong:x?}");
        }
    }
}
