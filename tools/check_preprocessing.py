"""Compares grove's preprocessing with torchvision's, transformers' and timm's on whole photographs.

    ~/venv/ref/bin/python tools/check_preprocessing.py

Builds and runs inputs/images/examples/preprocess.rs on the photographs of scikit-image and scikit-learn, as PNG and
JPEG. Prints the mean and the largest difference of the final tensors in grey levels (before division by the standard
deviation). Also loads grove's saved preprocessing with AutoImageProcessor, and times a 12-megapixel JPEG against
Pillow. Fails if a mean exceeds one level.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import skimage.data
import timm.data
import torch
import torchvision
import torchvision.transforms.functional as F
from PIL import Image
from sklearn.datasets import load_sample_image
from transformers import AutoImageProcessor

ROOT = Path(__file__).resolve().parents[1]
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def photographs(folder: Path) -> list[Path]:
    arrays = {name: getattr(skimage.data, name)() for name in ["astronaut", "chelsea", "coffee", "rocket"]}
    arrays |= {name: load_sample_image(f"{name}.jpg") for name in ["china", "flower"]}
    files = []
    for name, array in arrays.items():
        image = Image.fromarray(array).convert("RGB")
        files += [folder / f"{name}.png", folder / f"{name}.jpg"]
        image.save(files[-2])
        image.save(files[-1], quality=92)
    return files


def transformers_run(config: dict):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "preprocessor_config.json").write_text(json.dumps(config))
        processor = AutoImageProcessor.from_pretrained(folder)
    return lambda image: processor(image, return_tensors="pt")["pixel_values"][0]


def pipelines() -> dict[str, tuple[object, object]]:
    """Returns name → (grove's preset or configuration, the reference)."""
    found = {}
    for name, preset, weights in [
        ("torchvision resnet18 V1", "torchvision", torchvision.models.ResNet18_Weights.IMAGENET1K_V1),
        ("torchvision resnet50 V2", "torchvision-v2", torchvision.models.ResNet50_Weights.IMAGENET1K_V2),
    ]:
        found[name] = (preset, weights.transforms())
    configs = {
        "transformers ViT": {"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224},
                             "resample": 2, **HALF},
        "transformers resnet-50": {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 224,
                                   "crop_pct": 0.875, "resample": 3, **IMAGENET},
        "transformers ConvNeXT 384": {"image_processor_type": "ConvNextImageProcessor",
                                      "size": {"shortest_edge": 384}, "resample": 3, **IMAGENET},
        "transformers DINOv2": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256},
                                "crop_size": {"height": 224, "width": 224}, "resample": 3, **IMAGENET},
        "transformers CLIP": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}},
    }
    found |= {name: (config, transformers_run(config)) for name, config in configs.items()}
    for name, size, pct, mode, filter in [("ViT", (224, 224), 0.9, "center", "bicubic"),
                                          ("squash", (224, 224), 1.0, "squash", "bicubic"),
                                          ("border", (224, 224), 0.95, "border", "bilinear"),
                                          ("oblong", (256, 320), 0.9, "center", "bicubic")]:
        cfg = {"input_size": [3, *size], "crop_pct": pct, "crop_mode": mode, "interpolation": filter,
               "mean": [0.5] * 3, "std": [0.5] * 3}
        found[f"timm {name}"] = ({"pretrained_cfg": cfg}, timm.data.create_transform(
            (3, *size), interpolation=filter, mean=cfg["mean"], std=cfg["std"], crop_pct=pct, crop_mode=mode))
    return found


def grove(binary: Path, config, files: list[Path], folder: Path) -> tuple[list[np.ndarray], list[dict]]:
    if isinstance(config, dict):
        path = folder / "config.json"
        path.write_text(json.dumps(config))
        config = path
    run = [binary, "--json", "--config", config, "--output", folder / "out", *files]
    report = json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)["images"]
    tensors = [np.fromfile(folder / "out" / f"{file.name}.f32", np.float32).reshape(row["shape"])
               for file, row in zip(files, report, strict=True)]
    return tensors, report


def levels(a: np.ndarray, reference: torch.Tensor, run) -> np.ndarray:
    """Returns the difference in grey levels: 1 level is 1/255 of the range from black to white."""
    def middle(value: int) -> torch.Tensor:
        # The centre of a large image, away from the border.
        tensor = run(Image.new("RGB", (512, 512), (value,) * 3))
        return tensor[:, tensor.shape[1] // 2, tensor.shape[2] // 2]

    black, white = middle(0), middle(255)
    return np.abs(a - reference.numpy()) * 255 / (white - black).numpy()[:, None, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, help="the example, built; default: build it")
    binary = parser.parse_args().binary
    if binary is None:
        build = ["cargo", "build", "-p", "grove-images", "--example", "preprocess", "--message-format=json"]
        lines = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        binary = next(Path(m["executable"]) for m in map(json.loads, lines) if m.get("executable"))
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = photographs(folder)
        print(f"{'mean and largest difference in grey levels':<44} {'PNG':>16} {'JPEG':>16}")
        for title, (config, run) in pipelines().items():
            tensors, _ = grove(binary, config, files, folder)
            off = {".png": [], ".jpg": []}
            for file, tensor in zip(files, tensors, strict=True):
                reference = run(Image.open(file).convert("RGB"))
                off[file.suffix].append(levels(tensor, reference, run))
            mean = {kind: float(np.mean([d.mean() for d in each])) for kind, each in off.items()}
            most = {kind: float(max(d.max() for d in each)) for kind, each in off.items()}
            worst = max(worst, *mean.values())
            print(f"{title:<44}" + "".join(f" {mean[k]:>9.4f} {most[k]:>6.2f}" for k in off))
        # transformers always uses its own crop and resize. The second pair has grove's presets unchanged, whose
        # crop may be off by a pixel; the first has grove's reading of the same file in transformers' mode.
        print("\nwhat grove saves, as AutoImageProcessor reads it: by transformers' convention, by the preset's own")
        for preset in ["torchvision", "torchvision-v2", "vit", "timm", "timm-imagenet", "cifar10"]:
            saved = folder / "saved"
            saved.mkdir(exist_ok=True)
            command = [binary, "--config", preset, "--write-config", saved / "preprocessor_config.json"]
            subprocess.run(command, check=True)
            processor = AutoImageProcessor.from_pretrained(saved)
            run = lambda image: processor(image, return_tensors="pt")["pixel_values"][0]
            config = json.loads((saved / "preprocessor_config.json").read_text())
            config.pop("convention", None)
            line = f"{preset:<44}"
            for kind in (config, preset):
                tensors, _ = grove(binary, kind, files, folder)
                off = [levels(t, run(Image.open(f).convert("RGB")), run) for f, t in zip(files, tensors)
                       if f.suffix == ".png"]
                line += f" {np.mean([d.mean() for d in off]):>9.4f} {max(d.max() for d in off):>6.2f}"
            print(line, type(processor).__name__)
        speed(binary, folder)
    if worst > 1:
        sys.exit(f"a mean difference of {worst:.3f} grey levels")


def speed(binary: Path, folder: Path) -> None:
    large = folder / "large.jpg"
    Image.fromarray(skimage.data.astronaut()).resize((4000, 3000), Image.Resampling.BICUBIC).save(large, quality=90)
    _, report = grove(binary, "torchvision", [large] * 5, folder)
    decode, prepare = (min(row[key] for row in report) for key in ("decode_ms", "prepare_ms"))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        image = Image.open(large).convert("RGB")
        decoded = time.perf_counter()
        view = F.center_crop(F.resize(image, 256), [224, 224])
        F.normalize(F.to_tensor(view), IMAGENET["image_mean"], IMAGENET["image_std"])
        times.append((decoded - start, time.perf_counter() - decoded))
    theirs = [min(t[i] for t in times) * 1e3 for i in (0, 1)]
    print(f"\n4000×3000 JPEG to 224, best of 5: grove decodes in {decode:.0f} ms and prepares in {prepare:.1f} ms; "
          f"Pillow and torchvision {theirs[0]:.0f} ms and {theirs[1]:.1f} ms")


if __name__ == "__main__":
    main()
