#!/usr/bin/env bash
# LSTM and GRU, forward and with gradients: grove, PyTorch and JAX in turn on this machine; prints Markdown tables of the
# best median of each (rnn_table.py).
#
#   GROVE_RNN=PROGRAM benches/rnn.sh
#
# The program takes `--rows KIND,HIDDEN,BATCH,STEPS ... --seconds S --json FILE` and writes JSON lines as rnn.py does,
# with "peer": "grove". From the environment:
#   GROVE_RNN  grove's program; empty leaves grove out               (must be set)
#   PYTHON     a Python with tools/fixtures/requirements.txt         (python3)
#   PEERS      what to run; `peak` is the machine itself, for the roofline   (peak grove torch jax)
#   ROUNDS     runs of each, in turn                                 (3)
#   BUDGET     seconds that a measurement may take                   (1.0)
#   THREADS    threads for all                                       (2)
#   KINDS, HIDDEN, BATCHES, STEPS                                    (lstm gru, 20 256 1024, 1 32 128, 50 500)
#   GROUPS_OF_ROWS  lines of rows instead of these four's product; peers take turns after each line
#   RESULTS    a file that the JSON lines are added to, and that the tables are made of   (a new one, not kept)
set -euo pipefail

if [[ $# -ne 0 || -z ${GROVE_RNN+set} ]]; then
    sed -n '2,19s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
threads=${THREADS:-2}
budget=${BUDGET:-1.0}
rounds=${ROUNDS:-3}
peers=${PEERS:-peak grove torch jax}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
results=${RESULTS:-$work/results}

groups=${GROUPS_OF_ROWS:-}
if [[ -z $groups ]]; then
    for kind in ${KINDS:-lstm gru}; do
        for hidden in ${HIDDEN:-20 256 1024}; do
            for batch in ${BATCHES:-1 32 128}; do
                for steps in ${STEPS:-50 500}; do
                    groups+="$kind,$hidden,$batch,$steps "
                done
            done
            groups+=$'\n'
        done
    done
fi

# The same cores for all, also where a program would take every one it sees.
cores=$("$python" -c 'import os, sys
print(",".join(map(str, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])))' "$threads")

for round in $(seq "$rounds"); do
    while read -r -a rows; do
        [[ ${#rows[@]} -gt 0 ]] || continue
        for peer in $peers; do
            echo "round $round of $rounds, $peer: ${rows[*]}" >&2
            case $peer in
                grove) [[ -n $GROVE_RNN ]] || continue; command=("$GROVE_RNN") ;;
                *) command=("$python" benches/rnn.py --peer "$peer" --threads "$threads") ;;
            esac
            RAYON_NUM_THREADS=$threads taskset -c "$cores" "${command[@]}" --rows "${rows[@]}" --seconds "$budget" \
                --json "$work/lines" >"$work/output" </dev/null || { cat "$work/output" >&2; exit 1; }
            cat "$work/lines" >>"$results"
            rm "$work/lines"
        done
    done <<<"$groups"
done

"$python" benches/rnn_table.py "$results"
echo "Best medians of $rounds rounds, $threads threads."
