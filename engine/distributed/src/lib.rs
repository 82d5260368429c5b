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
//! | a link of the optimizer's chain | [`all_reduce_gradients`] |
//! | an optimizer whose state is divided among the ranks | [`zero1`] |
//!
//! Data parallel training with a loop of one's own:
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_distributed::{all_reduce_gradients, broadcast, world};
//! use grove_optim::{Adamw, GradientTransformation, adamw, chain, clip_by_global_norm};
//! use grove_tree::Array;
//! # type B = burn_flex::Flex;
//!
//! let comm = world()?;
//! let params = broadcast(Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default())), &comm)?;
//! let optimizer = chain((
//!     all_reduce_gradients(&comm),
//!     clip_by_global_norm(1.0),
//!     adamw(1e-3, Adamw::default()),
//! ));
//! let state = optimizer.init(&params);
//! let grads = params.clone(); // of this rank's part of the batch
//! let (params, _state) = optimizer.step(grads, state, params);
//! # let _ = params;
//! comm.close()?;
//! # Ok::<(), grove_distributed::CommError>(())
//! ```
//!
//! `grove_train::fit` does all of this, and more, where its options have a communicator.
#![warn(missing_docs)]

mod buckets;
mod overlap;
mod transformation;
mod trees;
mod zero1;

pub use buckets::BucketTimes;
pub use grove_communicator::{CommError, Communicator, KeyValueStore, Rank, Wire, local_rank};
pub use grove_mpi::world;
pub use overlap::OverlappedSum;
pub use transformation::{AllReduceGradients, all_reduce_gradients};
pub use trees::{ReduceOptions, all_reduce_mean, all_reduce_sum, all_reduce_weighted_mean, broadcast, gather_missing};
pub use zero1::{Zero1, zero1};
