#!/usr/bin/env bash
# Time of a step at 1 and 2 ranks of one thread each, beside PyTorch's DDP with gloo, in turn: benches/ranks/run.sh [STEPS]
# Needs an installed MPI, a python with torch in $PYTHON, and grove-rank:
# cargo build --workspace --features grove-rank-tests/mpi --bin grove-rank
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RAYON_NUM_THREADS=1
steps=${1:-20}
program=${CARGO_TARGET_DIR:-target}/debug/grove-rank
for round in 1 2; do
    for ranks in 1 2; do
        for way in overlapped after; do
            mpirun --oversubscribe --bind-to none -n $ranks "$program" bench 4 "$steps" /dev/null $way | grep -v ^process
        done
        mpirun --oversubscribe --bind-to none --mca btl tcp,self -n $ranks "$program" bench 4 "$steps" /dev/null tcp | grep -v ^process
        "${PYTHON:-python3}" benches/ranks/ddp.py $ranks "$steps"
    done
done
