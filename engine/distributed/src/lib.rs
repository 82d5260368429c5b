//! Collectives over trees: data-parallel training on many processes.
//!
//! A [`Communicator`] contains the ranks of a job. [`world`] returns the communicator of a job started by `mpirun`, or a single
//! rank if the program runs alone. The functions on trees are collectives: every rank must call them in the same order, with
//! trees of the same structure.
//!
//! | topic | items |
//! |---|---|
//! | ranks, collectives over slices, timeouts | [`Communicator`], [`CommError`] |
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
//! `grove_optim::all_reduce_gradients` averages gradients as a part of an optimizer's chain, and `grove_optim::zero1` shards an
//! optimizer's state over the ranks.
//!
//! `grove_train::fit` does all of this, and more, if its options have a communicator.
#![warn(missing_docs)]

mod buckets;
mod overlap;
mod trees;

pub use buckets::BucketTimes;
pub use grove_communicator::{CommError, Communicator, KeyValueStore, Number, Rank, Wire, local_rank};
pub use grove_mpi::world;
pub use overlap::OverlappedSum;
pub use trees::{ReduceOptions, all_reduce_mean, all_reduce_sum, all_reduce_weighted_mean, broadcast, gather_missing};
