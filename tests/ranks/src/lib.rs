//! Training on several ranks, against training on one: `cargo test -p grove-rank-tests --features mpi`.
#![warn(missing_docs)]
