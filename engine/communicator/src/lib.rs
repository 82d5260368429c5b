//! Collectives over slices of numbers between the ranks, the processes of a job.
//!
//! A [`Communicator`] has the rank, the number of ranks, and the collectives: [`all_reduce`](Communicator::all_reduce),
//! [`all_gather`](Communicator::all_gather), [`reduce_scatter`](Communicator::reduce_scatter),
//! [`broadcast`](Communicator::broadcast), [`barrier`](Communicator::barrier). A [`KeyValueStore`] maps keys to values, which
//! ranks put and get at any time. The default communicator has one rank, so that the same program runs alone. `grove-mpi`
//! provides a communicator over MPI; [`Communicator::threads`] makes ranks from threads, for tests.
//!
//! - **Results do not depend on timing.** Every reduction adds the values in the order of the ranks, whatever the order of
//!   arrival and the division of an array. The same ranks give the same bits.
//! - **Nothing hangs.** A collective that a rank does not join ends with an error that names the rank; see [`CommError`].
//! - **Bytes.** In an all-reduce of `s` bytes over `n` ranks, each rank sends `2 s (n - 1) / n` bytes, the theoretical minimum.
//!
//! ```
//! use grove_communicator::Communicator;
//!
//! let sums = std::thread::scope(|scope| {
//!     let ranks = Communicator::threads(3);
//!     let threads: Vec<_> = ranks
//!         .into_iter()
//!         .map(|comm| scope.spawn(move || comm.all_reduce("numbers", vec![comm.rank() as f32, 1.0])))
//!         .collect();
//!     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
//! })?;
//! assert_eq!(sums, [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]);
//! # Ok::<(), grove_communicator::CommError>(())
//! ```
#![warn(missing_docs)]

mod agree;
mod collectives;
mod communicator;
mod error;
mod failure;
mod key_value;
mod launcher;
mod reduce;
mod threads;
mod transport;
mod watch;
mod words;

pub use collectives::Reserved;
pub use communicator::{Communicator, TIMEOUT_VARIABLE};
pub use error::{CommError, Rank, Result};
pub use key_value::KeyValueStore;
pub use launcher::local_rank;
pub use reduce::{PendingReduce, Wire};
pub use transport::{Absence, Exchange, Messages, Payload, Transport};
pub use words::{Number, Words};
