//! Environment variables of launchers.

use std::env;

/// Variables of the local rank: Open MPI, MPICH and Intel MPI, MVAPICH, HPE's PALS, Slurm. Slurm's is last, because in its jobs
/// the ranks of other launchers inherit the value of the script.
const LOCAL_RANKS: [&str; 5] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
];

/// Returns the number of this rank among the ranks of its machine, as set by the launcher; 0 if the program runs alone.
pub fn local_rank() -> usize {
    let values = LOCAL_RANKS.iter().filter_map(|name| env::var(name).ok());
    values.filter_map(|value| value.trim().parse().ok()).next().unwrap_or_default()
}
