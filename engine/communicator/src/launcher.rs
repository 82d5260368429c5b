//! The environment that launchers give to a rank.

use std::env;

/// Variables with the number of a rank among those of its machine: Open MPI, MPICH and Intel MPI, MVAPICH, HPE's PALS, Slurm. Slurm's is
/// last, since in its jobs other launchers' ranks have the one of the script.
const LOCAL_RANKS: [&str; 5] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
];

/// The number of this rank among those of its machine, as its launcher says; 0 where the program runs alone.
pub fn local_rank() -> usize {
    let values = LOCAL_RANKS.iter().filter_map(|name| env::var(name).ok());
    values.filter_map(|value| value.trim().parse().ok()).next().unwrap_or_default()
}
