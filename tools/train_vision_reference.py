"""The PyTorch reference of `train_vision`: trains a small ResNet or vision transformer on digits from idx files.

    python tools/train_vision_reference.py --arch resnet ~/data/mnist

benches/README.md lists the options of the two runs that it compares.

Prints a line for each epoch and finally a JSON line: parameters, held-out accuracy, seconds, peak MiB.
"""

import argparse
import copy
import json
import math
import resource
import time
from pathlib import Path

import numpy as np
import timm
import torch
from timm.models.resnet import BasicBlock
from torch import nn
from torch.nn import functional as F


def read_idx(path: Path) -> torch.Tensor:
    data = path.read_bytes()
    axes = data[3]
    shape = np.frombuffer(data, ">i4", axes, 4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape).copy())


class ResNet(nn.Module):
    """timm's names and blocks; the stem is one 3x3 convolution without stride, and there is no max pooling."""

    def __init__(self, channels, depths, classes: int, in_chans: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, channels[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        width = channels[0]
        self.stages = len(channels)
        for i, (planes, depth) in enumerate(zip(channels, depths)):
            blocks = []
            for j in range(depth):
                stride = 2 if i > 0 and j == 0 else 1
                down = None
                if stride != 1 or width != planes:
                    down = nn.Sequential(nn.Conv2d(width, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
                blocks.append(BasicBlock(width, planes, stride, down))
                width = planes
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


def affine(x: torch.Tensor, degrees: float, scale: float, shear: float, generator) -> torch.Tensor:
    """Rotates, scales and shears each image by random amounts, bilinearly, with zeros outside."""
    b = len(x)

    def within(limit: float):
        return (2 * torch.rand(b, generator=generator) - 1) * limit

    angle, slant, grow = within(math.radians(degrees)), within(shear), torch.exp(within(math.log1p(scale)))
    cos, sin = torch.cos(angle) / grow, torch.sin(angle) / grow
    rows = torch.stack([cos, cos * slant - sin, 0 * cos, sin, sin * slant + cos, 0 * cos], dim=1).reshape(b, 2, 3)
    return F.grid_sample(x, F.affine_grid(rows, x.shape, align_corners=False), align_corners=False)


def shift(x: torch.Tensor, pad: int, generator) -> torch.Tensor:
    """Takes a random crop of the original size from each zero-padded image."""
    b, c, h, w = x.shape
    padded = F.pad(x, [pad] * 4)
    top = torch.randint(0, 2 * pad + 1, (b, 1, 1, 1), generator=generator)
    left = torch.randint(0, 2 * pad + 1, (b, 1, 1, 1), generator=generator)
    rows = top + torch.arange(h).reshape(1, 1, h, 1)
    columns = left + torch.arange(w).reshape(1, 1, 1, w)
    return padded[torch.arange(b).reshape(b, 1, 1, 1), torch.arange(c).reshape(1, c, 1, 1), rows, columns]


def main() -> None:
    arguments = argparse.ArgumentParser(description="Trains a small ResNet or vision transformer on idx files.")
    add = arguments.add_argument
    add("data", type=Path)
    add("--arch", choices=["resnet", "vit"], default="resnet")
    add("--channels", type=int, nargs="+", default=[16, 32, 64])
    add("--depths", type=int, nargs="+", default=[1, 1, 1])
    add("--patch", type=int, default=4)
    add("--dim", type=int, default=64)
    add("--depth", type=int, default=4)
    add("--heads", type=int, default=4)
    add("--mlp-ratio", type=float, default=2.0)
    add("--pool", choices=["token", "avg"], default="token")
    add("--epochs", type=int, default=8)
    add("--batch", type=int, default=128)
    add("--optimizer", choices=["adamw", "sgd"], default="adamw")
    add("--lr", type=float, default=3e-3)
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=0.05)
    add("--warmup", type=float, default=1.0, help="epochs")
    add("--label-smoothing", type=float, default=0.0)
    add("--clip", type=float, default=0.0)
    add("--ema", type=float, default=0.0, help="decay of a moving average of the model, which is then evaluated")
    add("--pad", type=int, default=2)
    add("--affine", type=float, default=0.0, help="degrees; with it goes a tenth of scale and of shear")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=2)
    add("--save", type=Path, help="a safetensors file")
    given = arguments.parse_args()

    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    generator = torch.Generator().manual_seed(given.seed)
    sets = {}
    for part in ["train", "t10k"]:
        images = read_idx(given.data / f"{part}-images-idx3-ubyte").float()[:, None] / 255
        sets[part] = images, read_idx(given.data / f"{part}-labels-idx1-ubyte").long()
    images, labels = sets["train"]
    mean, std = images.mean(), images.std()
    classes = int(labels.max()) + 1

    if given.arch == "resnet":
        model = ResNet(given.channels, given.depths, classes)
    else:
        model = timm.create_model(
            "vit_base_patch16_224", pretrained=False, img_size=tuple(images.shape[2:]), in_chans=1,
            patch_size=given.patch, embed_dim=given.dim, depth=given.depth, num_heads=given.heads,
            mlp_ratio=given.mlp_ratio, num_classes=classes, global_pool=given.pool,
        )  # fmt: skip
    decayed = [p for n, p in model.named_parameters() if p.ndim >= 2 and "pos_embed" not in n and "token" not in n]
    chosen = {id(p) for p in decayed}
    groups = [
        dict(params=decayed, weight_decay=given.weight_decay),
        dict(params=[p for p in model.parameters() if id(p) not in chosen], weight_decay=0.0),
    ]
    if given.optimizer == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=given.lr)
    else:
        optimizer = torch.optim.SGD(groups, lr=given.lr, momentum=given.momentum, nesterov=True)
    batches = len(images) // given.batch  # the incomplete batch is dropped
    steps, warm = batches * given.epochs, int(batches * given.warmup)

    def rate(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    average, taken = copy.deepcopy(model) if given.ema else model, 0
    began = time.time()
    accuracy = best = 0.0
    for epoch in range(given.epochs):
        model.train()
        order = torch.randperm(len(images), generator=generator)
        total = 0.0
        for i in range(batches):
            chosen = order[i * given.batch : (i + 1) * given.batch]
            x = images[chosen]
            if given.affine:
                x = affine(x, given.affine, 0.1, 0.1, generator)
            if given.pad:
                x = shift(x, given.pad, generator)
            loss = F.cross_entropy(model((x - mean) / std), labels[chosen], label_smoothing=given.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            if given.clip:
                nn.utils.clip_grad_norm_(model.parameters(), given.clip)
            optimizer.step()
            schedule.step()
            if given.ema:
                decay, taken = min(given.ema, (1 + taken) / (10 + taken)), taken + 1
                with torch.no_grad():
                    for old, new in zip(average.state_dict().values(), model.state_dict().values()):
                        old.lerp_(new, 1 - decay) if old.is_floating_point() else old.copy_(new)
            total += loss.item()
        average.eval()
        with torch.inference_mode():
            held, truth = sets["t10k"]
            right = sum(
                (average((held[i : i + 250] - mean) / std).argmax(1) == truth[i : i + 250]).sum().item()
                for i in range(0, len(held), 250)
            )
        accuracy = right / len(truth)
        best = max(best, accuracy)
        print(f"{epoch + 1}: loss {total / batches:.4f}, {accuracy:.4f}, {time.time() - began:.1f} s", flush=True)
    if given.save:
        from safetensors.torch import save_file

        save_file(average.state_dict(), given.save)
    print(
        json.dumps(
            dict(
                arch=given.arch,
                seed=given.seed,
                parameters=sum(p.numel() for p in model.parameters()),
                epochs=given.epochs,
                accuracy=accuracy,
                best=best,
                seconds=round(time.time() - began, 1),
                peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            )
        )
    )


if __name__ == "__main__":
    main()
