//! Optimizers on several ranks.
//!
//! Data-parallel training with a custom loop:
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_distributed::{broadcast, world};
//! use grove_optim::{Adamw, GradientTransformation, adamw, all_reduce_gradients, chain, clip_by_global_norm};
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

mod all_reduce;
mod zero1;

pub use all_reduce::{AllReduceGradients, all_reduce_gradients};
pub use zero1::{Zero1, zero1};
