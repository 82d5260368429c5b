#!/usr/bin/env bash
# Greedy decoding at batch 1, grove and PyTorch in turn on this machine; prints a Markdown table of medians.
#
#   benches/gpt2_decode.sh DIR
#
# DIR is a GPT-2 directory (tools/make_gpt2_124m.py writes one). From the environment:
#   PYTHON    a Python with tools/fixtures/requirements.txt installed    (python3)
#   BACKENDS  grove's backends to run                                    (flex)
#   ROUNDS    runs of each, in turn                                      (3)
#   TOKENS    new tokens                                                 (64)
#   THREADS   threads for both                                           (all cores)
#   PROMPT    prompt as comma-separated token ids
set -euo pipefail

if [[ $# -ne 1 || ! -f $1/config.json ]]; then
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
model=$(realpath "$1")
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
backends=${BACKENDS:-flex}
rounds=${ROUNDS:-3}
tokens=${TOKENS:-64}
threads=${THREADS:-$(nproc)}
prompt=${PROMPT:-464,1468,17180,5509,379,262,886,286,262,11376,550,6204,612,2392,621,262}

cargo build -q --example gpt2
grove=${CARGO_TARGET_DIR:-target}/debug/examples/gpt2
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# Runs a command, takes the JSON object on its stdout, adds the framework, the threads and the peak resident size.
measure() {
    "$python" - "$@" <<'PYTHON'
import json, os, subprocess, sys

name, threads, *command = sys.argv[1:]
child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
out = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
if status != 0:
    sys.exit(f"{command[0]} failed with status {os.waitstatus_to_exitcode(status)}")
print(json.dumps(json.loads(out) | {"framework": name, "threads": int(threads), "peak_rss_mib": usage.ru_maxrss / 1024}))
PYTHON
}

# One pass over the weights, so that the first run does not pay for the disk.
cat "$model"/*.safetensors "$model"/*.bin >/dev/null 2>&1 || true

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    "$python" benches/gpt2_decode.py --model "$model" --prompt-ids "$prompt" --max-new-tokens "$tokens" \
        --threads "$threads" >>"$results"
    for backend in $backends; do
        RAYON_NUM_THREADS=$threads measure "grove, $backend" "$threads" \
            "$grove" --model "$model" --backend "$backend" --prompt-ids "$prompt" --max-new-tokens "$tokens" \
            --temperature 0 --ignore-eos --json >>"$results"
    done
done

"$python" - "$results" <<'PYTHON'
import json, statistics, sys

runs = {}
for line in open(sys.argv[1]):
    run = json.loads(line)
    runs.setdefault(run["framework"], []).append(run)


def median(name, key, digits):
    values = [run[key] for run in runs[name] if run.get(key) is not None]
    return f"{statistics.median(values):.{digits}f}" if values else "–"


print("| | tokens/s | first token, s | load, s | peak memory, MiB |")
print("|---|---:|---:|---:|---:|")
for name in runs:
    cells = [median(name, *c) for c in
             [("tokens_per_second", 1), ("first_token_seconds", 3), ("load_seconds", 2), ("peak_rss_mib", 0)]]
    print(f"| {name} | {' | '.join(cells)} |")
first, *others = ([run["generated_ids"] for run in group] for group in runs.values())
same = all(ids == first[0] for group in [first, *others] for ids in group)
some = next(iter(runs.values()))[0]
print(f"\nMedians of {len(first)}, {some['threads']} threads, {len(first[0])} new tokens; "
      + ("all runs gave the same tokens." if same else "THE RUNS GAVE DIFFERENT TOKENS."))
sys.exit(0 if same else 1)
PYTHON
