//! Deterministic mode: results that depend neither on the number of threads nor on the batch.

use std::sync::atomic::{AtomicU8, Ordering};

/// Not set yet.
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Enables or disables deterministic mode. In this mode, the results of grove's CPU kernels do not depend on the number of
/// threads, and the convolution of an image does not depend on the rest of its batch. Winograd's minimal filtering, in which
/// an infinity or NaN affects a whole tile of 4 x 4 results, is not used. Before the first call, the environment decides:
/// `GROVE_DETERMINISTIC=1` (or `true`, `on`, `yes`) enables the mode.
///
/// Large 3 x 3 convolutions take up to twice as long, and weight gradients of convolutions slightly longer. Burn's and
/// candle's own operations are not affected, nor are GPUs.
pub fn set_deterministic(on: bool) {
    STATE.store(if on { ON } else { OFF }, Ordering::Relaxed);
}

/// Returns true if results must not depend on the number of threads; see [`set_deterministic`].
pub fn deterministic() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let on = std::env::var("GROVE_DETERMINISTIC").is_ok_and(|value| truth(&value));
            // Another thread may have set it meanwhile.
            let state = if on { ON } else { OFF };
            let before = STATE.compare_exchange(UNKNOWN, state, Ordering::Relaxed, Ordering::Relaxed);
            before.map_or_else(|set| set == ON, |_| on)
        }
        state => state == ON,
    }
}

fn truth(value: &str) -> bool {
    ["1", "true", "on", "yes"].iter().any(|word| value.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::truth;

    #[test]
    fn reads_truth() {
        assert!(["1", "true", "ON", " yes "].into_iter().all(truth));
        assert!(!["", "0", "false", "off", "2"].into_iter().any(truth));
    }
}
