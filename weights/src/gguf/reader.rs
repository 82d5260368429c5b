//! Reading integers and strings of a header in place.

/// A cursor over a file's bytes. Each read is checked against the remaining bytes; nothing is copied.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Creates a cursor over `bytes` at `position`.
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position: position.min(bytes.len()) }
    }

    /// Returns the position of the next byte.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of remaining bytes.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Checks that `count` items of at least `size` bytes each fit into the remaining bytes, and that there are at most
    /// `most` items.
    pub(super) fn check_count(&self, count: u64, size: usize, most: u64, what: &str) -> Result<(), String> {
        let left = self.left();
        if count > (left / size) as u64 {
            return Err(format!("it claims {count} {what}, but only {left} bytes follow (truncated?)"));
        }
        if count > most {
            return Err(format!("it has {count} {what}; at most {most} are read"));
        }
        Ok(())
    }

    /// Returns the next `count` bytes.
    ///
    /// # Errors
    /// Returns the reason, if fewer bytes remain.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let left = &self.bytes[self.position..];
        let taken = usize::try_from(count).ok().and_then(|count| left.get(..count)).ok_or_else(|| {
            format!("it claims {count} bytes, but the file has only {} more (truncated?)", left.len())
        })?;
        self.position += taken.len();
        Ok(taken)
    }

    /// Returns the next `N` bytes, for an integer or float.
    ///
    /// # Errors
    /// Returns the reason, if fewer bytes remain.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let left = self.bytes[self.position..].first_chunk().ok_or("the file ends within it (truncated?)")?;
        self.position += N;
        Ok(*left)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns a string of at most `longest` bytes, which is preceded by its length.
    ///
    /// # Errors
    /// Returns the reason, if the string is longer, extends beyond the end, or is not UTF-8.
    pub(super) fn text(&mut self, longest: u64) -> Result<&'a str, String> {
        let length = self.u64()?;
        if length > longest {
            return Err(format!("it claims {length} bytes of text; at most {longest} are allowed"));
        }
        std::str::from_utf8(self.take(length)?).map_err(|error| format!("its text is not UTF-8: {error}"))
    }
}
