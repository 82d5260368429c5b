//! Collectives between the processes of a job, the ranks, over slices of numbers.
//!
//! A [`Communicator`] knows its rank and the number of ranks, and has the collectives: [`all_reduce`](Communicator::all_reduce),
//! [`all_gather`](Communicator::all_gather), [`reduce_scatter`](Communicator::reduce_scatter),
//! [`broadcast`](Communicator::broadcast), [`barrier`](Communicator::barrier). A [`KeyValueStore`] has values by key, which ranks
//! put and get when they want to. The default has one rank, so that the same program runs alone. `grove-mpi` has the one over MPI;
//! [`Communicator::threads`] makes ranks out of threads, for tests.
//!
//! - **Results do not depend on timing.** Every reduction adds the ranks' values in the order of the ranks, whatever arrives
//!   first and however an array is cut. The same ranks give the same bits.
//! - **Nothing hangs.** A collective that a rank does not join ends with an error that names it; see [`CommError`].
//! - **Bytes.** An all-reduce of `s` bytes over `n` ranks sends `2 s (n - 1) / n` bytes from each, the least that is possible.
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
