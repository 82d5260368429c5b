//! Training on several ranks, compared with training on one: `cargo test -p grove-rank-tests --features mpi`.
#![warn(missing_docs)]
