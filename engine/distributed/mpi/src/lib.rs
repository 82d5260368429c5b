//! The ranks of a job started by `mpirun` or `srun`.
//!
//! [`world`] returns the [`Communicator`] of the job. A program that was started alone is a single rank, and MPI is not used. The
//! feature `mpi` requires an installed MPI, such as Open MPI or MPICH, and clang; without the feature, a program that is started
//! as one of several ranks gets an error.
//!
//! The death of a rank is noticed within some hundredths of a second by the ranks on its machine, through Linux's pidfd. On other
//! machines it is noticed through the launcher, or after the timeout of a collective.
#![warn(missing_docs)]

#[cfg(feature = "mpi")]
mod post;
#[cfg(feature = "mpi")]
mod processes;
#[cfg(feature = "mpi")]
mod status;
#[cfg(feature = "mpi")]
mod transport;

use grove_communicator::{CommError, Communicator};
use std::sync::OnceLock;

/// Environment variables in which launchers pass the number of ranks, or the rank's number: Open MPI, MPICH and others with PMI,
/// PMIx (including Slurm's), MVAPICH.
const LAUNCHERS: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"];

/// Returns the ranks of this job: all that `mpirun` has started, or a single rank if the program was started alone. The first
/// call starts MPI; [`Communicator::close`] ends it.
///
/// # Errors
/// If the program is one of several ranks but was built without the feature `mpi`, if MPI does not start, or if the environment
/// has an invalid timeout.
pub fn world() -> Result<Communicator, CommError> {
    static WORLD: OnceLock<Result<Communicator, CommError>> = OnceLock::new();
    WORLD.get_or_init(start).clone()
}

fn start() -> Result<Communicator, CommError> {
    let Some(launcher) = LAUNCHERS.iter().find(|name| std::env::var_os(name).is_some()) else {
        return Ok(Communicator::single());
    };
    #[cfg(feature = "mpi")]
    {
        let _ = launcher;
        Communicator::new(transport::Mpi::start()?)
    }
    #[cfg(not(feature = "mpi"))]
    match std::env::var(launcher) {
        Ok(count) if launcher.ends_with("SIZE") && count.trim() == "1" => Ok(Communicator::single()),
        // `srun` of one task, which sets only PMIx's rank.
        Ok(_)
            if *launcher == "PMIX_RANK"
                && std::env::var("SLURM_STEP_NUM_TASKS").is_ok_and(|count| count.trim() == "1") =>
        {
            Ok(Communicator::single())
        }
        _ => Err(CommError::Transport(format!(
            "this is one of several ranks ({launcher} is set), but the program was built without MPI: build it with \
             `--features mpi`, or start it alone"
        ))),
    }
}
