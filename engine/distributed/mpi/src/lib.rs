//! The ranks of a job that `mpirun` or `srun` has started.
//!
//! [`world`] gives the [`Communicator`] of the job. A program that was started alone is one rank, and MPI is not touched. The
//! feature `mpi` needs an installed MPI, such as Open MPI or MPICH, and clang; without it, a program that is started as one of
//! several ranks is refused.
//!
//! A rank that dies is noticed within some hundredths of a second by the ranks on its machine, through Linux's pidfd, and on
//! other machines by what the launcher does about it, or after the time that a collective waits.
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

/// Variables by which launchers tell a program the number of ranks or its own: Open MPI, MPICH and others with PMI, PMIx (also
/// Slurm's), MVAPICH.
const LAUNCHERS: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"];

/// The ranks of this job: all that `mpirun` has started, or one where the program was started alone. The first call starts MPI;
/// [`Communicator::close`] ends it.
///
/// # Errors
/// The program is one of several ranks and was built without the feature `mpi`; MPI does not start; the environment has no
/// valid time-out.
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
        // `srun` of one task, which has PMIx's number alone.
        Ok(_)
            if *launcher == "PMIX_RANK"
                && std::env::var("SLURM_STEP_NUM_TASKS").is_ok_and(|count| count.trim() == "1") =>
        {
            Ok(Communicator::single())
        }
        _ => Err(CommError::Transport(format!(
            "this is one of several ranks ({launcher} is set), and the program was built without MPI: build it with `--features \
             mpi`, or start it alone"
        ))),
    }
}
