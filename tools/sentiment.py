"""Converts the 3,000 labelled sentences of the npm package `sentiment` to CSV files for fine-tuning and evaluation.

    npm pack sentiment@5.0.2 && tar xf sentiment-5.0.2.tgz
    python tools/sentiment.py package OUTPUT_DIRECTORY

They are reviews of films, products and restaurants (Kotzias et al., "From Group to Individual Labels using Deep
Features", 2015). One in ten of each label, selected by a hash of the text, goes to held_out.csv, the others to
train.csv.
"""

import csv
import hashlib
import json
import pathlib
import sys


def main(package, output):
    found = {}
    for file in sorted(pathlib.Path(package, "test", "fixtures").glob("*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8")):
            text = " ".join(entry["text"].split())
            if text:  # three texts are empty
                found.setdefault("positive" if entry["class"] else "negative", []).append(text)
    split = {"train": [], "held_out": []}
    for label, texts in sorted(found.items()):
        order = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
        count = len(order) // 10
        split["held_out"] += [(text, label) for text in order[:count]]
        split["train"] += [(text, label) for text in order[count:]]
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for name, rows in split.items():
        rows.sort(key=lambda row: hashlib.sha256(row[0].encode()).hexdigest()[::-1])
        with open(output / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["text", "label"])
            writer.writerows(rows)
        print(f"{name}.csv: {len(rows)} texts")


main(*sys.argv[1:])
