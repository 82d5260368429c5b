"""Makes full-size vision models for checks, and loads models that grove saved with other libraries.

    python tools/check_vision.py make DIR
    python tools/check_vision.py load DIR --kind KIND --pixels FILE --expect FILE

`make` writes a ResNet-50 with torchvision's names (DIR/resnet50: model.safetensors, reference.safetensors) and a ViT-B/16
in transformers' format (DIR/vit, with config.json and preprocessor_config.json too). All weights are random, including
norms, biases and running statistics; the heads are scaled so that logits have a deviation of 2 and images differ. The
references have `pixels` [4, 3, 224, 224], four photographs (DIR/images) preprocessed by each library, and `logits`, in
float32.

`load` loads the model of KIND in DIR (model.safetensors and, except for torchvision, config.json) strictly: a missing or
unexpected tensor is an error, except `num_batches_tracked` if the library does not need it. It runs `pixels` of the first
file and prints the largest difference from `logits` of the second, which may be the same file; with --tolerance, a larger
difference fails.
Kinds: resnet-torchvision, resnet-timm, resnet-transformers, vit-transformers (DINOv2 too), vit-timm, vit-torchvision.
torchvision models have no configuration: sizes come from shapes, attention heads from the published sizes or --heads. A
3x3 stem means no stride and no max pooling, as in the models of train_vision.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from torch import nn

# ---------------------------------------------------------------------------------------------- make


def photographs(folder: Path) -> list:
    from PIL import Image
    from skimage import data
    from sklearn.datasets import load_sample_images

    photographs = dict(astronaut=data.astronaut(), cat=data.chelsea(), coffee=data.coffee())
    photographs["temple"] = load_sample_images().images[0]
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    for name, pixels in photographs.items():
        images.append(Image.fromarray(pixels))
        images[-1].save(folder / f"{name}.png")
    return images


def randomize(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def noise(like, scale: float):
        return scale * torch.randn(like.shape, generator=generator)

    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                # A small weight of the last norm in each residual branch limits the growth of activations.
                module.weight.copy_((0.5 if name.endswith("bn3") else 1.0) + noise(module.weight, 0.1))
                module.bias.copy_(noise(module.bias, 0.1))
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.copy_(noise(module.running_mean, 0.1))
                    module.running_var.copy_(0.8 + 0.4 * torch.rand(module.running_var.shape, generator=generator))
                    module.num_batches_tracked.fill_(1000)
            elif isinstance(module, (nn.Conv2d, nn.Linear)):
                gain = 2.0 if isinstance(module, nn.Conv2d) and module.kernel_size[0] < 16 else 1.0
                module.weight.copy_(noise(module.weight, (gain / module.weight[0].numel()) ** 0.5))
                if module.bias is not None:
                    module.bias.copy_(noise(module.bias, 0.1))
        for name, parameter in model.named_parameters():
            if "token" in name or "position" in name:
                parameter.copy_(noise(parameter, 0.3))


def spread(model: nn.Module, head: nn.Linear, pixels, logits_of) -> torch.Tensor:
    """Rescales the head: removes the part of the logits that all images share, and scales the rest to a deviation of 2.
    Returns the logits."""
    with torch.no_grad():
        logits = logits_of(model, pixels)
        common = logits.mean(0)
        scale = 2.0 / (logits - common).std()
        head.bias.copy_((head.bias - common) * scale + 0.3 * torch.linspace(-1, 1, len(common)))
        head.weight.mul_(scale)
        return logits_of(model, pixels)


def make(folder: Path) -> None:
    import torchvision
    import transformers

    images = photographs(folder / "images")

    def put(name: str, pixels, logits) -> None:
        save_file(dict(pixels=pixels.contiguous(), logits=logits.contiguous()), folder / name / "reference.safetensors")
        best = logits.argmax(1).tolist()
        print(f"{name}: logits of deviation {logits.std():.2f}, at most {logits.abs().max():.2f}, best {best}")

    model = torchvision.models.resnet50(weights=None).eval()
    randomize(model, 0)
    transform = torchvision.models.ResNet50_Weights.IMAGENET1K_V1.transforms()
    pixels = torch.stack([transform(image) for image in images])
    logits = spread(model, model.fc, pixels, lambda model, pixels: model(pixels))
    (folder / "resnet50").mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / "resnet50" / "model.safetensors")
    put("resnet50", pixels, logits)

    config = transformers.ViTConfig(num_labels=1000)
    model = transformers.ViTForImageClassification(config).eval()
    randomize(model, 1)
    processor = transformers.ViTImageProcessor()
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    logits = spread(model, model.classifier, pixels, lambda model, pixels: model(pixels).logits)
    model.save_pretrained(folder / "vit")
    processor.save_pretrained(folder / "vit")
    put("vit", pixels, logits)


# ---------------------------------------------------------------------------------------------- load


def count(names, pattern: str) -> int:
    return len({match.group(1) for match in (re.match(pattern, name) for name in names) if match})


class TorchvisionResNet(nn.Module):
    """A ResNet of torchvision's blocks, with the sizes of given weights."""

    def __init__(self, weights: dict):
        super().__init__()
        from torchvision.models.resnet import BasicBlock, Bottleneck

        if "conv1.weight" not in weights or "layer1.0.conv1.weight" not in weights:
            raise SystemExit(f"not torchvision's names: {sorted(weights)[:3]} ...")
        shape = {name: value.shape for name, value in weights.items()}
        stem, channels, size, _ = shape["conv1.weight"]
        if size not in [3, 7]:
            raise SystemExit(f"unsupported: a stem of {size}x{size}")
        self.conv1 = nn.Conv2d(channels, stem, size, stride=2 if size == 7 else 1, padding=size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if size == 7 else nn.Identity()
        block = Bottleneck if "layer1.0.conv3.weight" in shape else BasicBlock
        wide = stem
        self.layers = count(shape, r"layer(\d+)\.")
        for i in range(1, self.layers + 1):
            blocks = []
            for j in range(count(shape, rf"layer{i}\.(\d+)\.")):
                path = f"layer{i}.{j}"
                out = shape[f"{path}.conv{3 if block is Bottleneck else 2}.weight"][0]
                planes = out // block.expansion
                stride = 2 if i > 1 and j == 0 else 1
                down = None
                if f"{path}.downsample.0.weight" in shape:
                    down = nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out))
                groups, base = 1, 64
                if block is Bottleneck:
                    width, of_group = shape[f"{path}.conv2.weight"][:2]
                    groups = width // of_group
                    base = 64.0 * (of_group + 1e-6) / planes
                blocks.append(block(wide, planes, stride, down, groups, base))
                wide = out
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.fc = nn.Linear(wide, shape["fc.weight"][0])

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for i in range(1, self.layers + 1):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


def torchvision_vit(weights: dict, heads: int | None) -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    if "conv_proj.weight" not in weights or "class_token" not in weights:
        raise SystemExit(f"not torchvision's names: {sorted(weights)[:3]} ...")
    width, channels, patch, _ = weights["conv_proj.weight"].shape
    if channels != 3:
        raise SystemExit(f"unsupported: torchvision's vision transformer has 3 channels, these weights {channels}")
    side = round((weights["encoder.pos_embedding"].shape[1] - 1) ** 0.5)
    heads = heads or {768: 12, 1024: 16, 1280: 16}.get(width)
    if heads is None:
        raise SystemExit(f"unsupported: the heads of a width of {width} are not known: --heads")
    return VisionTransformer(
        image_size=side * patch,
        patch_size=patch,
        num_layers=count(weights, r"encoder\.layers\.encoder_layer_(\d+)\."),
        num_heads=heads,
        hidden_dim=width,
        mlp_dim=weights["encoder.layers.encoder_layer_0.mlp.0.weight"].shape[0],
        num_classes=weights["heads.head.weight"].shape[0],
    )


def build(folder: Path, kind: str, heads: int | None):
    """Loads a model strictly, and returns it with a function to its logits."""
    family, library = kind.split("-")
    if library == "timm":
        import timm

        if "architecture" not in json.loads((folder / "config.json").read_text()):
            raise SystemExit("not a configuration of timm's")
        return timm.create_model(f"local-dir:{folder}", pretrained=True), lambda out: out
    if library == "transformers":
        import transformers

        class_ = getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])
        model, report = class_.from_pretrained(folder, output_loading_info=True)
        missing = {name for name in report["missing_keys"] if not name.endswith("num_batches_tracked")}
        wrong = dict(missing=missing, unexpected=report["unexpected_keys"], mismatched=report["mismatched_keys"])
        if any(wrong.values()):
            raise SystemExit(f"not strict: {wrong}")
        return model, lambda out: out.logits if "logits" in out else out.pooler_output
    weights = load_file(folder / "model.safetensors")
    model = TorchvisionResNet(weights) if family == "resnet" else torchvision_vit(weights, heads)
    own = {k for k in model.state_dict() if not k.endswith("num_batches_tracked")}
    given = {k for k in weights if not k.endswith("num_batches_tracked")}
    if own != given:
        raise SystemExit(f"not strict: missing {sorted(own - given)}, unexpected {sorted(given - own)}")
    tracked = {k: v for k, v in model.state_dict().items() if k not in weights}
    model.load_state_dict(tracked | weights, strict=True)
    return model, lambda out: out


def load(given) -> None:
    pixels = load_file(given.pixels)["pixels"]
    expected = load_file(given.expect)[given.key]
    model, logits_of = build(given.dir, given.kind, given.heads)
    model.eval()
    with torch.inference_mode():
        logits = logits_of(model(pixels))
    if logits.shape != expected.shape:
        raise SystemExit(f"{list(logits.shape)} where {list(expected.shape)} were expected")
    difference = (logits - expected).abs().max().item()
    same = (logits.argmax(1) == expected.argmax(1)).sum().item()
    count = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{given.kind}: {count} parameters, largest difference {difference:.3e} "
        f"of values to {expected.abs().max():.3f}, {same} of {len(logits)} best alike"
    )
    if given.tolerance is not None and not difference <= given.tolerance:
        sys.exit(1)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Makes full-size vision models; loads what grove saved.")
    commands = arguments.add_subparsers(dest="command", required=True)
    commands.add_parser("make").add_argument("dir", type=Path)
    add = commands.add_parser("load")
    add.add_argument("dir", type=Path)
    kinds = ["resnet-torchvision", "resnet-timm", "resnet-transformers"]
    kinds += ["vit-transformers", "vit-timm", "vit-torchvision"]
    add.add_argument("--kind", choices=kinds, required=True)
    add.add_argument("--pixels", type=Path, required=True)
    add.add_argument("--expect", type=Path, required=True)
    add.add_argument("--key", default="logits", help="the tensor to compare with")
    add.add_argument("--heads", type=int)
    add.add_argument("--tolerance", type=float)
    given = arguments.parse_args()
    make(given.dir) if given.command == "make" else load(given)


if __name__ == "__main__":
    main()
