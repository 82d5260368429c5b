"""Compares grove's and transformers' predictions of a classifier that examples/finetune_bert wrote.

    cargo run --example finetune_bert -- --model MODEL_DIR --data train.csv --held-out held_out.csv --output run
    python tools/check_classifier.py run/model held_out.csv --bert target/debug/examples/bert

Prints the largest difference of a probability. Fails if it exceeds 1e-4 or if a label differs.
"""

import argparse
import csv
import json
import subprocess

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--bert", default="target/debug/examples/bert")
    args = parser.parse_args()
    texts = [row["text"] for row in csv.DictReader(open(args.texts, newline="", encoding="utf-8"))]

    command = [args.bert, "--task", "classify", "--model", args.model, "--json"]
    result = subprocess.run(command, input="\n".join(texts), capture_output=True, text=True, check=True)
    ours = json.loads(result.stdout)["texts"]

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model).eval()
    apart = 0.0
    for text, found in zip(texts, ours, strict=True):
        logits = model(**tokenizer(text, return_tensors="pt", truncation=True)).logits[0]
        probabilities = dict(zip((model.config.id2label[i] for i in range(len(logits))), logits.softmax(0).tolist()))
        assert found["labels"][0]["label"] == max(probabilities, key=probabilities.get), text
        apart = max(apart, *(abs(label["score"] - probabilities[label["label"]]) for label in found["labels"]))
    print(f"{len(texts)} texts: the same labels, probabilities apart by at most {apart:.1e}")
    assert apart <= 1e-4


if __name__ == "__main__":
    main()
