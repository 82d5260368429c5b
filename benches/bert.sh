#!/usr/bin/env bash
# Sentence embeddings, grove, PyTorch and candle in turn on this machine; prints a Markdown table of medians.
#
#   benches/bert.sh MODEL_DIR SENTENCES.txt
#
# MODEL_DIR is a sentence-transformers directory, such as that of all-MiniLM-L6-v2; a sentence is a line. From the environment:
#   PYTHON    a Python with tools/fixtures/requirements.txt installed    (python3)
#   BACKENDS  grove's backends to run                                    (flex)
#   ROUNDS    runs of each, in turn                                      (3)
#   THREADS   threads for all                                            (all cores)
#   CANDLE    the program of benches/candle_bert, built in release mode  (built here)
set -euo pipefail

if [[ $# -ne 2 || ! -f $1/config.json || ! -f $2 ]]; then
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
model=$(realpath "$1")
sentences=$(realpath "$2")
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
backends=${BACKENDS:-flex}
rounds=${ROUNDS:-3}
threads=${THREADS:-$(nproc)}
export RAYON_NUM_THREADS=$threads

cargo build -q --example bert
grove=${CARGO_TARGET_DIR:-target}/debug/examples/bert
if [[ -z ${CANDLE:-} ]]; then
    (cd benches/candle_bert && cargo build -q --release --target-dir /tmp/candle-bert)
    CANDLE=/tmp/candle-bert/release/candle-bert
fi
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# Runs a command, takes the JSON object on its stdout, adds the framework and the peak resident size.
measure() {
    "$python" - "$@" <<'PYTHON' >>"$results"
import json, os, subprocess, sys

name, *command = sys.argv[1:]
child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
out = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
if status != 0:
    sys.exit(f"{command[0]} failed with status {os.waitstatus_to_exitcode(status)}")
print(json.dumps(json.loads(out) | {"framework": name, "peak_rss_mib": usage.ru_maxrss / 1024}))
PYTHON
}

cat "$model"/*.safetensors >/dev/null
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    measure "PyTorch, transformers" "$python" benches/bert_embed.py "$model" "$sentences" "$threads"
    measure "candle-transformers" "$CANDLE" "$model" "$sentences"
    for backend in $backends; do
        measure "grove, $backend" "$grove" --task embed --model "$model" --backend "$backend" --file "$sentences" \
            --max-length 256 --json
    done
done

"$python" - "$results" <<'PYTHON'
import json, math, statistics, sys

runs = {}
for line in open(sys.argv[1]):
    run = json.loads(line)
    runs.setdefault(run["framework"], []).append(run)


def distance(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return 1 - dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


reference = next(iter(runs.values()))[0]["embeddings"]
print("| | sentences/s | peak memory, MiB | largest cosine distance to PyTorch's |")
print("|---|---:|---:|---:|")
for name, group in runs.items():
    rate = len(reference) / statistics.median(run["seconds"] for run in group)
    peak = statistics.median(run["peak_rss_mib"] for run in group)
    apart = max(abs(distance(a, b)) for run in group for a, b in zip(run["embeddings"], reference))
    print(f"| {name} | {rate:.1f} | {peak:.0f} | {apart:.0e} |")
print(f"\nMedians of {len(next(iter(runs.values())))}, {len(reference)} sentences.")
PYTHON
