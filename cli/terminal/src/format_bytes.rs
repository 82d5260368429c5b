//! Formatting of byte counts.

/// Formats a number of bytes with one decimal, in the largest unit of which there is at least one: `474.7 MiB`.
pub fn format_bytes(bytes: usize) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let size = |unit: usize| bytes as f64 / 1024_f64.powi(unit as i32 + 1);
    let unit = (1..units.len()).rev().find(|&unit| size(unit) >= 1.0).unwrap_or(0);
    format!("{:.1} {}", size(unit), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(
            [3 << 9, 1 << 20, 100 << 20, 1 << 29, 3 << 30].map(format_bytes),
            ["1.5 KiB", "1.0 MiB", "100.0 MiB", "512.0 MiB", "3.0 GiB"]
        );
    }
}
