//! Data sets and data loading. The order of batches is a function of a key and the epoch.
//!
//! A [`Data`] defines the batches of each epoch and loads them. grove has two implementations: [`TokenWindows`] over a
//! [`TokenStream`], in memory or memory-mapped, for language models, and [`Examples`] for data that fits in memory.
//! Both use an [`Order`], and so can a `Data` of your own. [`prefetch`] loads batches ahead on a thread, from any
//! [`Position`]; [`Data::epoch`] iterates over one epoch on the calling thread.
//!
//! Batches depend only on the key and the epoch, so a run saves just its position in order to resume with the batches
//! that it would have seen:
//!
//! ```
//! use std::sync::Arc;
//! use grove_train::data::{Position, TokenStream, TokenWindows, prefetch};
//! use grove_tree::Key;
//!
//! let text = TokenStream::new((0..100).collect());
//! let (train, _held_out) = text.split(0.1)?;
//! let windows = Arc::new(TokenWindows::new(train, 8, 4, Some(Key::new(0)))?);
//!
//! let mut whole = prefetch(windows.clone(), Position::default(), 2);
//! let (position, _batch) = whole.nth(2).expect("endless")?;
//!
//! let mut resumed = prefetch(windows, position, 2);
//! assert_eq!(resumed.next().expect("endless")?, whole.next().expect("endless")?);
//! # Ok::<(), grove_train::data::DataError>(())
//! ```

mod error;
mod examples;
mod labelled;
mod labels;
mod lm_text;
mod masking;
mod order;
mod pad;
mod parts;
mod position;
mod prefetch;
pub mod records;
mod source;
mod split;
mod text;
mod token_batch;
mod token_file;
mod token_stream;
mod token_windows;

pub use error::DataError;
pub use examples::Examples;
pub use labelled::{Columns, LabelledText, TextTable, read_labelled, read_multi_labelled, read_texts};
#[cfg(feature = "images")]
pub(crate) use labels::sorted_labels;
pub(crate) use labels::unknown_label;
pub use labels::{have_labels, labels, labels_in, multi_labels, with_classes};
pub use lm_text::LmText;
pub use masking::{MaskedBatch, Masking, masked_lm_sequences};
pub use order::Order;
pub use pad::{PaddedBatch, pad};
pub use parts::{Part, Parts};
pub use position::Position;
pub use prefetch::{Prefetch, prefetch};
pub use records::Place;
pub use source::Data;
pub use split::{split_at_random, split_by_class};
pub use text::{lines_with_places, read_documents, read_text};
pub use token_batch::TokenBatch;
pub use token_stream::TokenStream;
pub use token_windows::TokenWindows;
