//! Position of a run in its data set.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of batches seen: `epoch` complete epochs and `batch` batches of the next one.
///
/// It is saved in checkpoints; [`prefetch`](super::prefetch) resumes from it. The default is the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// Epoch of the next batch, from 0.
    pub epoch: u64,
    /// Index of the next batch in its epoch, from 0.
    pub batch: u64,
}

impl Position {
    /// Returns the position one batch later, in an epoch of `batches` batches.
    ///
    /// Positions are canonical: the first batch of the next epoch follows the last batch of an epoch.
    pub fn following(self, batches: usize) -> Self {
        if self.batch.saturating_add(1) < batches as u64 {
            Self { batch: self.batch + 1, ..self }
        } else {
            Self { epoch: self.epoch.saturating_add(1), batch: 0 }
        }
    }
}

/// Counts from 1: the start is `epoch 1, batch 1`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, batch {}", self.epoch.saturating_add(1), self.batch.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_each_other_across_epochs() {
        let mut position = Position::default();
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push((position.epoch, position.batch));
            position = position.following(2);
        }
        assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
        assert_eq!(Position { epoch: u64::MAX, batch: u64::MAX }.following(3).batch, 0);
        assert_eq!(Position::default().to_string(), "epoch 1, batch 1");
    }

    #[test]
    fn positions_are_json() {
        let position = Position { epoch: 3, batch: u64::MAX };
        let text = serde_json::to_string(&position).expect("written");
        assert_eq!(text, r#"{"epoch":3,"batch":18446744073709551615}"#);
        assert_eq!(serde_json::from_str::<Position>(&text).expect("read"), position);
    }
}
