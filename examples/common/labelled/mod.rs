//! Labelled texts: from files to what classifiers are trained on, and how often they are right.

// Each example uses a part of this.
#![allow(dead_code, unused_imports)]

mod read;
mod score;
mod split;

pub use read::{Columns, Labelled, Place, delimiter, read};
pub use score::Score;
pub use split::{labels, split, tell_unheld, with_classes};
