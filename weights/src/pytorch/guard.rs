//! Validation of a pickle before it is interpreted.
//!
//! `candle-core`'s interpreter trusts lengths, copies memoized values each time they are recalled, and drops nested
//! values recursively. The guard executes the same opcodes with the same effects on stack and memo, but tracks only the
//! size and depth of each value. It rejects pickles whose values would take much more memory than the length of the
//! pickle.

use std::collections::HashMap;

use super::CONVERT;

/// Maximum nesting depth of values; a state dict needs about ten.
const DEEPEST: usize = 64;
/// Allowed size of all values, whatever the pickle's length, in bytes.
const ALWAYS: usize = 16 << 20;
/// Additional allowed size per byte of pickle read.
const PER_BYTE: usize = 256;
/// Size of a value without its text, in bytes.
const VALUE: usize = 64;

/// Size in bytes and nesting depth of a value in the interpreter.
#[derive(Clone, Copy)]
struct Extent {
    size: usize,
    depth: usize,
}

const LEAF: Extent = Extent { size: VALUE, depth: 1 };

/// Stack and memo of the interpreter. A stack entry `None` is a mark.
#[derive(Default)]
struct Machine {
    stack: Vec<Option<Extent>>,
    memo: HashMap<u32, Extent>,
    /// Sum of the sizes of all values on the stack and all values ever memoized.
    held: usize,
}

/// Validates the pickle at the start of the bytes, and returns its length.
///
/// # Errors
/// Returns the reason: an unknown opcode, a length beyond the end, or values that are too large or nested too deep.
pub(super) fn check(bytes: &[u8]) -> Result<usize, String> {
    let mut machine = Machine::default();
    let mut rest = bytes;
    loop {
        let [opcode] = take::<1>(&mut rest)?;
        let is_last = machine.step(opcode, &mut rest)?;
        let length = bytes.len() - rest.len();
        if is_last {
            return Ok(length);
        }
        // Relative to the bytes read, not to the available bytes: gigabytes of other data may follow the pickle.
        if machine.held > length.saturating_mul(PER_BYTE).saturating_add(ALWAYS) {
            return Err("its pickle would grow far beyond its length".into());
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (taken, later) = rest.split_first_chunk::<N>().ok_or("its pickle ends too early")?;
    *rest = later;
    Ok(*taken)
}

fn skip(rest: &mut &[u8], count: usize) -> Result<(), String> {
    *rest = rest.get(count..).ok_or("its pickle claims a length beyond its end")?;
    Ok(())
}

/// Skips a line, which must be terminated, and returns its length.
fn skip_line(rest: &mut &[u8]) -> Result<usize, String> {
    let length = rest.iter().position(|&byte| byte == b'\n').ok_or("its pickle ends within a line")?;
    skip(rest, length + 1)?;
    Ok(length)
}

impl Machine {
    /// Executes one opcode; returns true at the end of the pickle.
    fn step(&mut self, opcode: u8, rest: &mut &[u8]) -> Result<bool, String> {
        match opcode {
            b'.' => return Ok(true),
            0x80 => skip(rest, 1)?,
            b'c' => {
                let text = skip_line(rest)? + skip_line(rest)?;
                self.push(Extent { size: VALUE + text, depth: 1 })?;
            }
            b'X' => {
                let length = u32::from_le_bytes(take(rest)?) as usize;
                skip(rest, length)?;
                self.push(Extent { size: VALUE + length, depth: 1 })?;
            }
            b'K' => self.number(rest, 1)?,
            b'M' => self.number(rest, 2)?,
            b'J' => self.number(rest, 4)?,
            b'G' => self.number(rest, 8)?,
            0x8a => {
                let [length] = take(rest)?;
                if length > 8 {
                    return Err("its pickle has a number of more than 64 bits".into());
                }
                self.number(rest, length.into())?;
            }
            b'N' | 0x88 | 0x89 | b')' | b']' | b'}' | b'd' => self.push(LEAF)?,
            b'(' => self.stack.push(None),
            b'q' => {
                let [id] = take(rest)?;
                self.remember(id.into())?;
            }
            b'r' => self.remember(u32::from_le_bytes(take(rest)?))?,
            b'h' => {
                let [id] = take(rest)?;
                self.recall(id.into())?;
            }
            b'j' => self.recall(u32::from_le_bytes(take(rest)?))?,
            b'Q' | 0x85 => self.wrap(1)?,
            b'R' | b'b' | 0x81 | 0x86 => self.wrap(2)?,
            0x87 => self.wrap(3)?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(Extent { size: VALUE + items.size, depth: items.depth + 1 })?;
            }
            b'a' => {
                let item = self.pop()?;
                self.add_to_top(item)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.add_to_top(both(value, key))?;
            }
            b'e' | b'u' => {
                let items = self.pop_to_mark()?;
                self.add_to_top(items)?;
            }
            b'T' | b'U' => return Err(format!("its pickle was written by Python 2; {CONVERT}")),
            other => {
                return Err(format!(
                    "its pickle uses opcode {other:#04x}; save it with torch.save's default pickle protocol 2"
                ));
            }
        }
        Ok(false)
    }

    fn push(&mut self, value: Extent) -> Result<(), String> {
        if value.depth > DEEPEST {
            return Err("its pickle nests too deep".into());
        }
        self.held = self.held.saturating_add(value.size);
        self.stack.push(Some(value));
        Ok(())
    }

    fn pop(&mut self) -> Result<Extent, String> {
        let value = self.stack.pop().flatten().ok_or("its pickle takes a value from an empty stack")?;
        self.held = self.held.saturating_sub(value.size);
        Ok(value)
    }

    fn pop_to_mark(&mut self) -> Result<Extent, String> {
        let mut items = Extent { size: 0, depth: 0 };
        while let Some(top) = self.stack.last() {
            if top.is_none() {
                self.stack.pop();
                return Ok(items);
            }
            items = both(items, self.pop()?);
        }
        Err("its pickle lacks a mark".into())
    }

    /// Replaces the top `count` values by one value that contains them.
    fn wrap(&mut self, count: usize) -> Result<(), String> {
        let mut items = Extent { size: 0, depth: 0 };
        for _ in 0..count {
            items = both(items, self.pop()?);
        }
        self.push(Extent { size: items.size.saturating_add(VALUE), depth: items.depth + 1 })
    }

    /// Adds `items` to the container at the top of the stack.
    fn add_to_top(&mut self, items: Extent) -> Result<(), String> {
        let container = self.pop()?;
        let size = container.size.saturating_add(items.size);
        self.push(Extent { size, depth: container.depth.max(items.depth + 1) })
    }

    fn number(&mut self, rest: &mut &[u8], bytes: usize) -> Result<(), String> {
        skip(rest, bytes)?;
        self.push(LEAF)
    }

    fn remember(&mut self, id: u32) -> Result<(), String> {
        let top = self.stack.last().copied().flatten().ok_or("its pickle memoises a value of an empty stack")?;
        // An overwritten entry still counts, because the interpreter copied it too. PyTorch never uses an id twice.
        self.memo.insert(id, top);
        self.held = self.held.saturating_add(top.size);
        Ok(())
    }

    fn recall(&mut self, id: u32) -> Result<(), String> {
        let value = *self.memo.get(&id).ok_or("its pickle reads a memo entry that it never wrote")?;
        self.push(value)
    }
}

fn both(a: Extent, b: Extent) -> Extent {
    Extent { size: a.size.saturating_add(b.size), depth: a.depth.max(b.depth) }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn plain_pickles_pass() {
        // pickle.dumps({'a': (1, 2.5, None), 'b': [True, 'x']}, protocol=2), without the memo.
        let pickle = b"\x80\x02}(X\x01\0\0\0aK\x01G\x40\x04\0\0\0\0\0\0N\x87X\x01\0\0\0b](\x88X\x01\0\0\0xeu.";
        assert_eq!(check(pickle), Ok(pickle.len()));
        // Bytes after the pickle are ignored.
        assert_eq!(check(&[&pickle[..], b"}."].concat()), Ok(pickle.len()));
    }

    #[test]
    fn hostile_pickles_do_not() {
        // A string of 4 GiB in ten bytes.
        let long_text = b"\x80\x02X\xff\xff\xff\xffab.".to_vec();
        // ((), ((), ((), …))): each level memoized and recalled twice, 2^40 values.
        let mut laughs = b"\x80\x02)q\0".to_vec();
        for id in 1..=40u8 {
            laughs.extend([b'h', id - 1, b'h', id - 1, 0x86, b'q', id]);
        }
        laughs.push(b'.');
        // The same, followed by a megabyte of unrelated bytes.
        let followed = [&laughs[..], &[0; 1 << 20]].concat();
        // A megabyte of text, memoized under the same id a million times.
        let mut forgetful = b"\x80\x02X\0\0\x10\0".to_vec();
        forgetful.resize(forgetful.len() + (1 << 20), b'a');
        forgetful.extend(b"q\0".repeat(1 << 20));
        let mut deep = b"\x80\x02)".to_vec();
        deep.extend([0x85; 100_000]);
        deep.push(b'.');
        for (pickle, word) in [
            (long_text, "beyond its end"),
            (laughs, "far beyond"),
            (followed, "far beyond"),
            (forgetful, "far beyond"),
            (deep, "too deep"),
            (b"\x80\x02".to_vec(), "too early"),
            (b"\x80\x04\x95\0\0\0\0\0\0\0\0.".to_vec(), "protocol 2"),
            (b"\x80\x02U\x01a.".to_vec(), "Python 2"),
            (b"u.".to_vec(), "mark"),
            (b"R.".to_vec(), "an empty stack"),
            (b"h\x05.".to_vec(), "never wrote"),
            (b"\x8a\xffaaaa.".to_vec(), "64 bits"),
            (b"ctorch".to_vec(), "line"),
        ] {
            let reason = check(&pickle).expect_err(word);
            assert!(reason.contains(word), "{reason}");
        }
    }
}
