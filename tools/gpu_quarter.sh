#!/usr/bin/env bash
# Everything that a quarter of an hour on a machine with an NVIDIA GPU should give: does grove run there, are its results right,
# how fast is it beside PyTorch.
#
#   tools/gpu_quarter.sh pack [OPTION...]                  where cargo is: a folder of at most 45 MiB, .gpu_quarter
#   tools/gpu_quarter.sh compile [OPTION...]               optional: compiles the session's kernels ahead, without a GPU
#   tools/gpu_quarter.sh run --minutes 8 --out DIR         on the GPU machine: all steps, the most important ones first
#   tools/gpu_quarter.sh list                              the steps
#   tools/gpu_quarter.sh tables --out DIR                  the tables again, from the results in DIR
#
# The folder that pack makes has this script, too:
#
#   tools/gpu_quarter.sh pack && scp -r .gpu_quarter gpu: && ssh gpu .gpu_quarter/gpu_quarter.sh run --minutes 8 --out results
#
# `run --begin-with DIR` goes on where the run that wrote DIR ended. --help of a command has its other options. pack needs cargo,
# strip and Python 3.10; run needs Python 3.10, an NVIDIA driver, and CUDA's toolkit or its packages from PyPI (docs/cuda.md).
# Columns of PyTorch need PyTorch with transformers and torchvision.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "gpu_quarter: $python is not Python 3.10 or newer: install it, or name another in the variable PYTHON" >&2
    exit 1
fi
# In a pack the scripts are in an archive.
scripts=$here/gpu_quarter
if [[ -f $here/files.tar.xz ]]; then
    place=${TMPDIR:-/tmp}/grove_gpu_quarter_$(sha256sum "$here/files.tar.xz" | cut -c 1-12)
    mkdir -p "$place"
    "$python" -W ignore -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/files.tar.xz" "$place"
    scripts=$place/tools/gpu_quarter
    export GROVE_GPU_PACK=$here
fi
case ${1:-} in
pack | compile) exec "$python" "$scripts/$1.py" "${@:2}" ;;
list | run | tables) exec "$python" "$scripts/main.py" "$@" ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
