//! The environment that launchers give to a rank.

use std::env;

/// Variables with the number of a rank among those of its machine: Open MPI, Slurm, MPICH and Intel MPI, MVAPICH, HPE's PALS.
const LOCAL_RANKS: [&str; 5] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
];

/// The number of this rank among those of its machine, as its launcher says; 0 where the program runs alone.
pub fn local_rank() -> usize {
    let values = LOCAL_RANKS.iter().filter_map(|name| env::var(name).ok());
    values.filter_map(|value| value.trim().parse().ok()).next().unwrap_or_default()
}
