#!/usr/bin/env bash
# Greedy decoding of a quantized LLaMA at batch 1: llama.cpp, candle and grove in turn on this machine; prints a Markdown
# table of medians.
#
#   benches/llama_decode.sh MODEL.gguf
#
# From the environment:
#   PYTHON    a Python with llama-cpp-python installed                    (python3)
#   GROVE     grove's example `llama`, built; empty leaves grove out      (built here)
#   CANDLE    the program of benches/candle_llama; empty leaves it out    (built here)
#   BACKENDS  grove's backends to run                                     (flex)
#   CACHES    types of grove's cached keys and values; llama.cpp's is f16 (f32 f16)
#   INPUTS    types in which grove's quantized layers read their inputs; llama.cpp's is int8 (f32 int8)
#   ROUNDS    runs of each, in turn                                       (3)
#   PROMPTS   lengths of prompts, in tokens, cut from TEXT                (64 512)
#   TOKENS    new tokens after each                                       (128)
#   THREADS   threads for all                                             (all cores)
#   TEXT      what prompts are cut from                                   (benches/llama_prompt.txt)
set -euo pipefail

if [[ $# -ne 1 || ! -f $1 ]]; then
    sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
model=$(realpath "$1")
text=$(realpath "${TEXT:-$(dirname "$0")/llama_prompt.txt}")
for program in GROVE CANDLE; do
    [[ -z ${!program:-} ]] || printf -v "$program" %s "$(realpath "${!program}")"
done
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
backends=${BACKENDS:-flex}
caches=${CACHES:-f32 f16}
inputs=${INPUTS:-f32 int8}
rounds=${ROUNDS:-3}
prompts=${PROMPTS:-64 512}
tokens=${TOKENS:-128}
threads=${THREADS:-$(nproc)}
export RAYON_NUM_THREADS=$threads

if [[ -z ${GROVE+set} ]]; then
    cargo build -q --example llama
    GROVE=${CARGO_TARGET_DIR:-target}/debug/examples/llama
fi
if [[ -z ${CANDLE+set} ]]; then
    (cd benches/candle_llama && cargo build -q --release --target-dir /tmp/candle-llama)
    CANDLE=/tmp/candle-llama/release/candle-llama
fi
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# Runs a command, takes the JSON object on its stdout, adds the prompt's length, the framework (unless the command says
# it) and the peak resident size.
measure() {
    "$python" - "$@" <<'PYTHON' >>"$results"
import json, os, subprocess, sys

name, length, *command = sys.argv[1:]
child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
out = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
if status != 0:
    sys.exit(f"{command[0]} failed with status {os.waitstatus_to_exitcode(status)}")
known = {"framework": name, "prompt_tokens": int(length), "peak_rss_mib": usage.ru_maxrss / 1024}
print(json.dumps(known | json.loads(out)))
PYTHON
}

# One pass over the weights, so that the first run does not pay for the disk.
cat "$model" >/dev/null
all=$("$python" benches/llama_decode.py --model "$model" --tokenize "$text")

for round in $(seq "$rounds"); do
    for length in $prompts; do
        echo "round $round of $rounds, $length tokens of prompt" >&2
        prompt=$(cut -d, -f"-$length" <<<"$all")
        if [[ $(tr -cd , <<<"$prompt" | wc -c) -ne $((length - 1)) ]]; then
            echo "$text has fewer than $length tokens: name a longer one as TEXT" >&2
            exit 2
        fi
        measure llama.cpp "$length" "$python" benches/llama_decode.py --model "$model" --prompt-ids "$prompt" \
            --max-new-tokens "$tokens" --threads "$threads"
        if [[ -n $CANDLE ]]; then
            measure candle-transformers "$length" "$CANDLE" "$model" "$prompt" "$tokens"
        fi
        if [[ -n $GROVE ]]; then
            for backend in $backends; do
                for cache in $caches; do
                    for input in $inputs; do
                        options=()
                        [[ $input == f32 ]] || options=(--quantized-activations)
                        measure "grove, $backend, cache $cache, inputs $input" "$length" "$GROVE" --model "$model" \
                            --backend "$backend" --cache-dtype "$cache" --prompt-ids "$prompt" \
                            --max-new-tokens "$tokens" --temperature 0 --ignore-eos --json "${options[@]}"
                    done
                done
            done
        fi
    done
done

"$python" - "$results" "$threads" <<'PYTHON'
import json, os, statistics, sys

runs = {}
for line in open(sys.argv[1]):
    run = json.loads(line)
    runs.setdefault((run["prompt_tokens"], run["framework"]), []).append(run)


def median(group, of, digits):
    values = [of(run) for run in group if of(run) is not None]
    return f"{statistics.median(values):.{digits}f}" if values else "–"


print("| prompt | | tokens/s of the prompt | new tokens/s | load, s | peak memory, MiB | new tokens as llama.cpp's |")
print("|---:|---|---:|---:|---:|---:|---:|")
failed, spread = False, 1.0
for length in sorted({length for length, _ in runs}):
    reference = None
    for (_, name), group in ((key, group) for key, group in runs.items() if key[0] == length):
        cells = [
            median(group, lambda run: length / run["first_token_seconds"], 1),
            median(group, lambda run: run["tokens_per_second"], 1),
            median(group, lambda run: run["load_seconds"], 2),
            median(group, lambda run: run["peak_rss_mib"], 0),
        ]
        rates = [run["tokens_per_second"] for run in group if run["tokens_per_second"] is not None]
        spread = max([spread, *(max(rates) / rate for rate in rates)])
        reference = reference or group[0]["generated_ids"]
        # Kernels that round activations in another way part somewhere; what they agree on before is one prefix.
        shared = min(len(os.path.commonprefix([run["generated_ids"], reference])) for run in group)
        failed |= shared == 0 or any(len(run["generated_ids"]) != len(reference) for run in group)
        print(f"| {length} | {name} | {' | '.join(cells)} | {shared} of {len(reference)} |")
print(f"\nMedians of {len(next(iter(runs.values())))}, {sys.argv[2]} threads; the same program's speeds differ by up to "
      f"{spread:.1f} times."
      + (" SOME GAVE OTHER TOKENS FROM THE START, OR ANOTHER NUMBER OF THEM." if failed else ""))
sys.exit(1 if failed else 0)
PYTHON
