//! Formatting of byte counts.

/// Formats a number of bytes in GiB, such as `1.5 GiB`, or in MiB below 0.1 GiB.
pub fn format_bytes(bytes: usize) -> String {
    match bytes as f64 / (1 << 30) as f64 {
        small if small < 0.1 => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
        large => format!("{large:.1} GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(
            [1 << 20, 100 << 20, 1 << 29, 3 << 30].map(format_bytes),
            ["1.0 MiB", "100.0 MiB", "0.5 GiB", "3.0 GiB"]
        );
    }
}
