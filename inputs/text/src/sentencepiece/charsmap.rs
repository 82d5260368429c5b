//! Character map of a SentencePiece model.

use tokenizers::normalizers::precompiled::Precompiled;

/// Maximum length of a character's replacement, in bytes. Unicode's longest has 18 characters.
const LONGEST_REPLACEMENT: usize = 1 << 8;

/// Reads a `precompiled_charsmap`: the size of a trie, the trie as a double array, and the replacements, each
/// terminated by a zero byte. The library follows the trie's offsets without bounds checks, so an invalid trie would
/// abort the program. Therefore every offset is checked here.
pub(crate) fn precompiled(bytes: &[u8]) -> Result<Precompiled, String> {
    let broken = |what: &str| Err(format!("its map of characters is damaged: {what}"));
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return broken("it has no size") };
    let size = u32::from_le_bytes(*size) as usize;
    if size == 0 || !size.is_multiple_of(4) || size > rest.len() {
        return broken("its trie has no such size");
    }
    let (trie, replacements) = rest.split_at(size);
    let Ok(replacements) = std::str::from_utf8(replacements) else { return broken("it is not in UTF-8") };
    if replacements.split('\0').any(|replacement| replacement.len() > LONGEST_REPLACEMENT) {
        return broken("one character becomes a long text");
    }
    let units: Vec<u32> =
        trie.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])).collect();
    for (place, &unit) in units.iter().enumerate() {
        // A unit with the highest bit set is a value, which is never reached through a byte.
        if unit >> 31 == 1 {
            continue;
        }
        // https://github.com/s-yata/darts-clone: offset of the children; bit 8 says that the first child is a value.
        let base = place ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        if base | 0xFF >= units.len() {
            return broken("an offset leads out of its trie");
        }
        let value = (units[base] & !(1 << 31)) as usize;
        if unit & (1 << 8) != 0 && !replacements.is_char_boundary(value) {
            return broken("an offset points to no replacement");
        }
    }
    Precompiled::from(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::precompiled;

    /// 256 units, zero except for the given first ones, and replacements.
    fn map(first: &[u32], replacements: &[u8]) -> Vec<u8> {
        let mut units = vec![0u32; 256];
        units[..first.len()].copy_from_slice(first);
        let trie = units.iter().flat_map(|unit| unit.to_le_bytes());
        1024u32.to_le_bytes().into_iter().chain(trie).chain(replacements.iter().copied()).collect()
    }

    #[test]
    fn refuses_offsets_out_of_range() {
        precompiled(&map(&[], b"a\0")).unwrap();
        let cases: [(&[u8], &str); 7] = [
            (b"\x01\x02", "no size"),
            (b"\0\0\0\0", "such size"),
            (b"\x03\0\0\0aaaa", "such size"),
            (b"\xff\xff\xff\xff", "such size"),
            (&map(&[1 << 18], b""), "out of its trie"),
            (&map(&[1 << 8, 1 << 31], b"\xff"), "UTF-8"),
            (&map(&[1 << 8 | 1 << 31, 1 << 8 | 1 << 10], "é".as_bytes()), "points to no replacement"),
        ];
        for (bytes, reason) in cases {
            let error = precompiled(bytes).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
