#!/usr/bin/env python3
"""Checks the packages of a release that `cargo package` has written.

packages.py FOLDER   fails if a package lacks its description, licence or README, or has test fixtures; or if the one of the models
                     lacks the weights that ship
"""

import pathlib
import sys
import tarfile
import tomllib

WEIGHTS = ["gpt2-austen", "gpt-neo-austen", "llama-austen", "llama-austen-chat", "bert-austen", "rnn-austen", "mnist-resnet",
           "mnist-vit"]


def faults(file):
    """What is wrong with a package, and its size in bytes."""
    with tarfile.open(file) as package:
        root = file.name.removesuffix(".crate")
        names = {name.removeprefix(root + "/") for name in package.getnames()}
        manifest = tomllib.loads(package.extractfile(f"{root}/Cargo.toml").read().decode())["package"]
    for key in ["description", "license", "readme", "rust-version"]:
        if not manifest.get(key):
            yield f"has no {key}"
    yield from (f"has the fixture {name}" for name in names if "fixtures" in name.split("/"))
    if manifest["name"] == "grove-models":
        weights = {f"assets/{model}/model.safetensors" for model in WEIGHTS}
        yield from (f"lacks {name}" for name in weights - names)


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.crate"))
    if not files:
        sys.exit(f"{sys.argv[1]} has no packages")
    wrong = False
    for file in files:
        print(f"{file.stat().st_size / 1e6:6.2f} MB  {file.name}")
        for fault in faults(file):
            wrong = True
            print(f"           {fault}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
