#!/usr/bin/env bash
# Training steps of a GPT-2 of 11.6 million parameters, grove and PyTorch in turn on this machine; prints a Markdown
# table of medians.
#
#   benches/gpt2_train.sh
#
# The data are random tokens, so that both have the same loss. From the environment:
#   PYTHON    a Python with tools/fixtures/requirements.txt installed    (python3)
#   BACKENDS  grove's backends to run                                    (flex)
#   ROUNDS    runs of each, in turn                                      (2)
#   STEPS     steps that are measured                                    (20)
#   WARM_UP   steps before them                                          (5)
#   BATCH     rows of a batch                                            (8)
#   THREADS   threads for both                                           (all cores)
#   SIZES     sizes of the model
#             (--n-layer 6 --n-head 6 --n-embd 384 --context 256 --vocab-size 2048 --dropout 0.1)
set -euo pipefail

if [[ $# -ne 0 ]]; then
    sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
backends=${BACKENDS:-flex}
rounds=${ROUNDS:-2}
steps=${STEPS:-20}
warm_up=${WARM_UP:-5}
batch=${BATCH:-8}
threads=${THREADS:-$(nproc)}
sizes=${SIZES:---n-layer 6 --n-head 6 --n-embd 384 --context 256 --vocab-size 2048 --dropout 0.1}

cargo build -q --workspace --examples
grove=${CARGO_TARGET_DIR:-target}/debug/examples/train_gpt2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A million random tokens, in the format of train/src/data/token_file.rs.
"$python" - "$work/random.tokens" $sizes <<'PYTHON'
import random, struct, sys

path, *sizes = sys.argv[1:]
vocab, count = int(sizes[sizes.index("--vocab-size") + 1]), 1_000_000
tokens = random.Random(0).choices(range(vocab), k=count)
with open(path, "wb") as file:
    file.write(b"grovetok" + struct.pack("<II", 1, 2) + struct.pack(f"<{count}H", *tokens) + struct.pack("<Q", count))
PYTHON

# Runs the example in a directory of its own. Between two records of its log lie the steps that count.
measure() {
    "$python" - "$@" <<'PYTHON'
import json, os, subprocess, sys

name, run, warm_up, threads, *command = sys.argv[1:]
child = subprocess.Popen(command + ["--output", run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
err = child.stderr.read().decode()
_, status, usage = os.wait4(child.pid, 0)
if status != 0:
    sys.exit(f"{command[0]} failed with status {os.waitstatus_to_exitcode(status)}: {err}")
records = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
counted = [record for record in records if record["step"] > int(warm_up)]
first = next(record for record in records if record["step"] == int(warm_up))
last = counted[-1]
option = lambda key: int(command[command.index(key) + 1])
tokens = (last["step"] - first["step"]) * option("--batch-size") * option("--context")
print(json.dumps({
    "framework": name,
    "tokens_per_second": tokens / (last["seconds"] - first["seconds"]),
    "peak_mib": usage.ru_maxrss / 1024,
    "loss": sum(record["train/loss"] for record in counted) / len(counted),
    "threads": int(threads),
}))
PYTHON
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    "$python" benches/gpt2_train.py --tokens "$work/random.tokens" $sizes --batch-size "$batch" --steps "$steps" \
        --warm-up "$warm_up" --threads "$threads" >>"$work/results"
    for backend in $backends; do
        RAYON_NUM_THREADS=$threads measure "grove, $backend" "$work/$backend-$round" "$warm_up" "$threads" \
            "$grove" --data "$work/random.tokens" --backend "$backend" $sizes --batch-size "$batch" \
            --steps $((steps + warm_up)) --warmup 0 --final-learning-rate 1 --log-every 1 --held-out-part 0 \
            --json >>"$work/results"
    done
done

"$python" - "$work/results" "$batch" "$steps" <<'PYTHON'
import json, statistics, sys

path, batch, steps = sys.argv[1:]
runs = {}
for line in open(path):
    run = json.loads(line)
    runs.setdefault(run["framework"], []).append(run)

print("| | tokens/s | peak memory, MiB | loss |")
print("|---|---:|---:|---:|")
for name, group in runs.items():
    cells = [f"{statistics.median(run[key] for run in group):.{digits}f}"
             for key, digits in [("tokens_per_second", 0), ("peak_mib", 0), ("loss", 3)]]
    print(f"| {name} | {' | '.join(cells)} |")
some = next(iter(runs.values()))
print(f"\nMedians of {len(some)} runs, {some[0]['threads']} threads, {steps} steps of {batch} rows.")
PYTHON
