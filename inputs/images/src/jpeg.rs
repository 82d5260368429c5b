//! Detection of truncated JPEG files. The decoder fills missing data with grey, and a model would be trained on it.

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;

/// Returns true if the segments (ITU T.81 annex B) lead from the start to the end-of-image marker.
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
    let mut at = 0;
    loop {
        let Some(marker) = next_marker(bytes, &mut at) else { return false };
        match marker {
            EOI => return true,
            // Markers without a length: start of image, TEM, restarts.
            SOI | 0x01 | 0xd0..=0xd7 => {}
            _ => {
                let Some(&[high, low]) = bytes.get(at..at + 2) else { return false };
                // A length includes its own two bytes. The decoder rejects smaller ones.
                at += usize::from(u16::from_be_bytes([high, low])).max(2);
                if marker == SOS {
                    skip_coded_data(bytes, &mut at);
                }
            }
        }
    }
}

/// Returns the next marker's code and moves `at` after it. Bytes before a marker are skipped, as in decoders.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        let rest = bytes.get(*at..)?;
        *at += rest.iter().position(|&b| b == 0xff)?;
        // Any number of 0xff bytes may precede the code.
        *at += bytes.get(*at..)?.iter().position(|&b| b != 0xff)?;
        let code = *bytes.get(*at)?;
        *at += 1;
        if code != 0 {
            return Some(code);
        }
    }
}

/// Moves to the first marker that is neither a stuffed zero nor a restart.
fn skip_coded_data(bytes: &[u8], at: &mut usize) {
    while let Some(rest) = bytes.get(*at..) {
        match rest.iter().position(|&b| b == 0xff) {
            Some(skip) => *at += skip,
            None => *at = bytes.len(),
        }
        match bytes.get(*at + 1) {
            Some(0 | 0xd0..=0xd7) => *at += 2,
            Some(0xff) => *at += 1,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_complete;

    // SOI, an APP0 segment of four bytes that contains an EOI of its own, SOS, coded data with a stuffed zero and a
    // restart, EOI.
    const WHOLE: &[u8] =
        &[0xff, 0xd8, 0xff, 0xe0, 0, 4, 0xff, 0xd9, 0xff, 0xda, 0, 3, 1, 7, 0xff, 0, 9, 0xff, 0xd0, 5, 0xff, 0xd9];

    #[test]
    fn only_the_whole_file_is_complete() {
        assert!(is_complete(WHOLE));
        for length in 0..WHOLE.len() {
            assert!(!is_complete(&WHOLE[..length]), "{length} bytes");
        }
    }
}
