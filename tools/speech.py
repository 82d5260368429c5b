"""Extracts labelled sentences for the demonstration of examples/finetune_bert: speech and narration in Jane Austen's
novels.

    python tools/speech.py models/assets/gpt2-austen/held_out.txt models/assets/bert-austen/speech.csv

Paragraphs that are one quotation are speech; those without quotation marks are narration. The first four sentences of
each are taken, without quotation marks, if they have 4 to 40 words. Both classes are cut to the size of the smaller
one.
"""

import csv
import re
import sys


def sentences(paragraph):
    return re.split(r"(?<=[.!?])\s", paragraph.strip('"').replace("_", "").strip())[:4]


def main(source, target):
    found = {"speech": [], "narration": []}
    for paragraph in open(source, encoding="utf-8").read().splitlines():
        label = None
        if re.fullmatch(r'"[^"]+"', paragraph):
            label = "speech"
        elif paragraph and '"' not in paragraph and not paragraph.isupper() and not paragraph.startswith("Chapter"):
            label = "narration"
        if label:
            found[label] += [s for s in sentences(paragraph) if 4 <= len(s.split()) <= 40 and '"' not in s]
    count = min(map(len, found.values()))
    rows = [(found[label][i], label) for i in range(count) for label in sorted(found)]
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["text", "label"])
        writer.writerows(rows)
    print(f"{len(rows)} sentences, {count} of each label")


main(*sys.argv[1:])
