#!/usr/bin/env bash
# ResNet-50 and ViT-B/16 on pictures of 224x224, grove, PyTorch and JAX in turn on this machine; prints a Markdown table.
#
#   benches/vision.sh
#
# From the environment:
#   PYTHON   a Python with tools/fixtures/requirements.txt installed     (python3)
#   ROUNDS   runs of each, in turn                                       (3)
#   RUNS     passes of a run after its first                             (10)
#   BATCHES  pictures in a batch                                         (1 16)
#   MODELS   what is timed                                               (resnet50 vit_b_16)
#   THREADS  threads for all                                             (all cores)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
rounds=${ROUNDS:-3}
runs=${RUNS:-10}
threads=${THREADS:-$(nproc)}
export RAYON_NUM_THREADS=$threads OMP_NUM_THREADS=$threads

cargo build -q --workspace --example time_vision
grove=${CARGO_TARGET_DIR:-target}/debug/examples/time_vision
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# Runs a command, takes the JSON object on its stdout, adds the peak resident size.
measure() {
    "$python" - "$@" <<'PYTHON' >>"$results"
import json, os, subprocess, sys

child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
out = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
if status != 0:
    sys.exit(f"{sys.argv[1]} failed with status {os.waitstatus_to_exitcode(status)}")
print(json.dumps(json.loads(out.splitlines()[-1]) | {"peak_mib": usage.ru_maxrss / 1024}))
PYTHON
}

for ((round = 0; round < rounds; round++)); do
    for model in ${MODELS:-resnet50 vit_b_16}; do
        for batch in ${BATCHES:-1 16}; do
            same=(--model "$model" --batch "$batch" --runs "$runs")
            measure "$grove" "${same[@]}"
            measure "$python" benches/vision.py --framework torch "${same[@]}"
            if [[ $model == resnet50 ]]; then
                measure "$python" benches/vision.py --framework torch --form channels_last "${same[@]}"
            fi
            measure "$python" benches/vision.py --framework jax "${same[@]}"
        done
    done
done

"$python" - "$results" <<'PYTHON'
import json, statistics, sys

rows = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    form = row.get("form", "")
    name = row["framework"] + ("" if form in ("", "eager", "flex", "jit") else f", {form}")
    rows.setdefault((row["model"], row["batch"]), {}).setdefault(name, []).append(row)
print("| | batch | | milliseconds a pass | pictures/s | peak memory, MiB |")
print("|---|---:|---|---:|---:|---:|")
for (model, batch), frameworks in rows.items():
    for name, found in frameworks.items():
        median = statistics.median(row["median_s"] for row in found)
        peak = statistics.median(row["peak_mib"] for row in found)
        print(f"| {model} | {batch} | {name} | {1e3 * median:.0f} | {batch / median:.1f} | {peak:.0f} |")
PYTHON
