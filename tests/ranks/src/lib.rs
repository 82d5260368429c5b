//! Training on several ranks, compared with training on one:
//! `cargo test --workspace --features grove-rank-tests/mpi --test training`.
#![warn(missing_docs)]
