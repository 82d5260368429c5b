#!/usr/bin/env bash
# Everything that an hour on a GPU machine should give, in pieces.
#
#   tools/gpu_day.sh pack [OPTION...]                     where cargo is: what the GPU machine needs, in .gpu_day/
#   tools/gpu_day.sh list                                 the steps, with what each needs and gives
#   tools/gpu_day.sh run [STEP...] --out FOLDER [...]     on the GPU machine: these steps, or all that are not done
#   tools/gpu_day.sh tables --out FOLDER                  the tables again, from the results in FOLDER
#
# pack, run and tables tell their options with --help. pack needs cargo, strip and Python 3.10; run needs Python 3.10, an
# NVIDIA driver and CUDA's run-time compiler (a toolkit, or the wheels that PyTorch brings). Where PyTorch, transformers or
# JAX are missing, their columns are left out, and a sentence says so.
#
# On a machine of one's own:
#
#   tools/gpu_day.sh pack --whole && scp -r .gpu_day gpu: && ssh gpu .gpu_day/tools/gpu_day.sh run --out results
#
# With the tool that lends a machine (`run`: the working tree and .gpu_day travel, 64 MiB in all; 10 minutes a call; at
# most 8 files come back, from $OUT). Here, before the first call:
#
#   tools/gpu_day.sh pack
#
# Then calls of one or more steps each with timeout_s 600. Together the archives are too large; each call carries the manifest,
# CUDA's headers and the archive of its steps, ARCHIVE being bench, generate, train, tests_backend and so on (`list`), that is
# carry [".gpu_day/manifest.json", ".gpu_day/cuda.tar.xz", ".gpu_day/ARCHIVE.tar.xz"]:
#
#   tools/gpu_day.sh run machine parity_backend --out /tmp/day --limit 560 --archive $OUT/day.tar.gz
#   tools/gpu_day.sh run bench_f32_models bench_f32_training --out /tmp/day --limit 560 --archive $OUT/day.tar.gz
#
# --limit ends everything in time, and --archive writes the results after each step. A step that did not get to its end
# goes on in a later call. A fresh machine has no /tmp/day: copy the day.tar.gz that came back to .gpu_day/, carry it
# too, and add `--begin-with .gpu_day/day.tar.gz`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "gpu_day: $python is not Python 3.10 or newer: install it, or name another in the variable PYTHON" >&2
    exit 1
fi
case ${1:-} in
pack) exec "$python" "$here/gpu_day/pack.py" "${@:2}" ;;
list | run | tables) exec "$python" "$here/gpu_day/main.py" "$@" ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
