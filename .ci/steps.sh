# Sourced by run and nightly: steps with headings, their times, and where builds go.

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/grove/target}
export CARGO_TERM_COLOR=never
# Incremental state of a fresh clone is written and never read.
export CARGO_INCREMENTAL=0
# Test programs, of which there are many, without optimisation. Cargo does not build anew what was built without it.
export RUSTC_WRAPPER=$PWD/.ci/rustc

# The tests on CUDA, on a GPU or on the emulated one of tools/cuda_emulator.
cuda_tests=grove-backend/cuda_tests,grove-compile/cuda_tests,grove-layers/cuda_tests,grove-models/cuda_tests,grove-optim/cuda_tests,grove-tasks/cuda_tests,grove-train/cuda_tests

# The same on wgpu.
wgpu_tests=grove-backend/wgpu,grove-compile/wgpu,grove-layers/wgpu,grove-models/wgpu,grove-tasks/wgpu

times=()

# step NAME COMMAND...: runs a command under a heading. The first failure ends the script.
step() {
    local name=$1 start=$SECONDS
    shift
    printf '\n==> %s\n' "$name"
    "$@"
    times+=("$((SECONDS - start)) $name")
    printf '==> %s: %d s\n' "$name" $((SECONDS - start))
}

# Seconds of each step, the longest first, however the script ends.
print_times() {
    local status=$?
    printf '\n%7s  step\n' seconds
    if ((${#times[@]} > 0)); then
        printf '%s\n' "${times[@]}" | sort -rn | while read -r seconds name; do printf '%7d  %s\n' "$seconds" "$name"; done
    fi
    printf '%7d  all\n' $SECONDS
    return $status
}
trap print_times EXIT

# Installs OpenXLA's plugin for the processor, pinned by its hash, into the virtual environment of a folder.
xla_cpu_plugin() {
    [[ -x $1/bin/pip ]] || python3 -m venv "$1"
    "$1/bin/pip" install -q --require-hashes --no-deps -r .ci/xla.txt
}

# The tests on OpenXLA's plugins, which are in the virtual environment of a folder. With the whole workspace, Burn is the one that the
# other tests compiled.
on_xla() {
    local file tests=(--test xla)
    if cargo nextest --version >/dev/null 2>&1; then
        VIRTUAL_ENV=$1 GROVE_REQUIRE_PJRT=1 cargo nextest run --workspace -E 'package(grove-xla)' --status-level slow
        return
    fi
    for file in engine/xla/tests/*.rs; do
        tests+=(--test "$(basename "$file" .rs)")
    done
    VIRTUAL_ENV=$1 GROVE_REQUIRE_PJRT=1 cargo test --workspace "${tests[@]}"
}

# The tests of ranks under mpirun; arguments are those of the test programs. With the whole workspace, what the other tests compiled
# is compiled again only from grove-mpi upward. XLA's plugin is there where its own tests have found it.
on_mpi() {
    VIRTUAL_ENV=$HOME/.cache/grove/xla \
        cargo test --workspace --features grove-rank-tests/mpi --test trees --test mpirun --test training -- "$@"
}
