"""Converts scikit-learn's digits (1797 images of 8x8, brightness 0 to 16) to idx files: 1,500 for training, 297 held
out.

    python tools/digits.py ~/data/digits
"""

import argparse
from pathlib import Path

import numpy as np
from mnist import split, write
from sklearn.datasets import load_digits


def main() -> None:
    arguments = argparse.ArgumentParser(description="Makes idx files of scikit-learn's digits.")
    arguments.add_argument("out", type=Path, help="where the files go")
    given = arguments.parse_args()
    digits = load_digits()
    images = np.rint(digits.images * 255 / 16).astype(np.uint8)
    train, held = split(images, digits.target.astype(np.uint8), 297, 0)
    write(given.out, "train", *train)
    write(given.out, "t10k", *held)


if __name__ == "__main__":
    main()
