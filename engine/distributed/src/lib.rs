//! Collectives over trees: data parallel training on many processes.
//!
//! A [`Communicator`] is the ranks of a job; [`world`] gives the one that `mpirun` has started, and one rank where a program runs
//! alone. The functions of trees are collectives: every rank calls them in the same order, with trees of the same structure.
//!
//! | what | where |
//! |---|---|
//! | ranks, collectives over slices, time-outs | [`Communicator`], [`CommError`] |
//! | means of gradients | [`all_reduce_mean`], [`all_reduce_weighted_mean`] |
//! | sums of gradients while the backward pass still runs | [`OverlappedSum`] |
//! | the same model on all ranks | [`broadcast`] |
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_distributed::{all_reduce_mean, broadcast, world};
//! use grove_tree::Array;
//! # type B = burn_flex::Flex;
//!
//! let comm = world()?;
//! let params = broadcast(Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default())), &comm)?;
//! let grads = params.clone(); // of this rank's part of the batch
//! let mean = all_reduce_mean(grads, &comm)?;
//! # assert_eq!(mean.val().to_data(), params.val().to_data());
//! comm.close()?;
//! # Ok::<(), grove_distributed::CommError>(())
//! ```
//!
//! `grove_optim::all_reduce_gradients` is the mean as a link of an optimizer's chain, and `grove_optim::zero1` divides an optimizer's
//! state among the ranks.
//!
//! `grove_train::fit` does all of this, and more, where its options have a communicator.
#![warn(missing_docs)]

mod buckets;
mod overlap;
mod trees;

pub use buckets::BucketTimes;
pub use grove_communicator::{CommError, Communicator, KeyValueStore, Rank, Wire, local_rank};
pub use grove_mpi::world;
pub use overlap::OverlappedSum;
pub use trees::{ReduceOptions, all_reduce_mean, all_reduce_sum, all_reduce_weighted_mean, broadcast, gather_missing};
