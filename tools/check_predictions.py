"""Compares grove's and transformers' predictions of images, for directories that `finetune_vision` wrote.

    cargo run --example vit -- --model DIR --image IMAGES --top-k 1000 --json > said.json
    python tools/check_predictions.py DIR said.json

The directory has config.json, model.safetensors and preprocessor_config.json with transformers' names. Prints the
largest difference of a probability, and the number of images whose most likely class differs.
"""

import argparse
import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from PIL import Image


def main() -> None:
    arguments = argparse.ArgumentParser(description="Compares transformers' predictions with grove's.")
    arguments.add_argument("dir", type=Path)
    arguments.add_argument("said", type=Path)
    given = arguments.parse_args()
    model = transformers.AutoModelForImageClassification.from_pretrained(given.dir).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(given.dir)
    said = json.loads(given.said.read_text())["images"]
    apart, other = 0.0, 0
    for image in said:
        pixels = processor(Image.open(image["image"]).convert("RGB"), return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            found = model(pixels).logits[0].softmax(-1)
        expected = {p["label"]: p["score"] for p in image["labels"]}
        apart = max(apart, max(abs(found[i].item() - expected[model.config.id2label[i]]) for i in range(len(found))))
        other += model.config.id2label[found.argmax().item()] != image["labels"][0]["label"]
    print(f"{len(said)} images: probabilities apart by at most {apart:.1e}; {other} have another likeliest class")


if __name__ == "__main__":
    main()
