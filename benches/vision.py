"""ResNet-50 and ViT-B/16 on pictures of 224x224 with PyTorch and JAX: the peers of grove's programs.

    python benches/vision.py --framework torch|jax --model resnet50|vit_b_16 --batch N --runs R

Inference in float32 on random pictures with random weights. Prints one JSON line: {"framework", "form", "model", "batch",
"threads", "first_s", "median_s", "min_s", "peak_mib"}: `first_s` is the first pass, JAX's compilation with it; the
others are of the R passes after it; `peak_mib` is the largest resident size of the process.

--form, for torch: `eager` (the default), `channels_last` (pictures and weights) or `compile` (torch.compile, which needs a
C++ compiler). JAX has its pictures channels last, and its batch norms are one scale and one shift.

`--check` gives both the same weights and pictures, and prints how far apart they are.
"""

import argparse
import json
import os
import resource
import statistics
import time

DEPTHS = [3, 4, 6, 3]
EPS_NORM, EPS_LAYER = 1e-5, 1e-6


# ---------------------------------------------------------------------------------------------- torch


def torch_model(name: str):
    import torch
    import torchvision

    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval()
    if name == "vit_b_16":  # torchvision begins with a head of zeros
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    return model


def torch_run(given):
    import torch

    torch.set_num_threads(given.threads)
    model = torch_model(given.model)
    x = torch.randn(given.batch, 3, 224, 224)
    if given.form == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    elif given.form == "compile":
        model = torch.compile(model)

    def run():
        with torch.inference_mode():
            model(x).sum().item()

    return run


# ---------------------------------------------------------------------------------------------- jax


def shapes(name: str) -> dict:
    """torchvision's names; weights of convolutions [h, w, in, out], of maps [in, out]; norms as `scale` and `shift`."""
    found = {}

    def norm(path: str, width: int) -> None:
        found[f"{path}.scale"] = found[f"{path}.shift"] = (width,)

    def linear(path: str, wide: int, out: int) -> None:
        found[f"{path}.weight"] = (wide, out)
        found[f"{path}.bias"] = (out,)

    if name == "resnet50":
        found["conv1.weight"] = (7, 7, 3, 64)
        norm("bn1", 64)
        wide = 64
        for i, depth in enumerate(DEPTHS):
            planes = 64 * 2**i
            for j in range(depth):
                path = f"layer{i + 1}.{j}."
                for k, (size, a, b) in enumerate([(1, wide, planes), (3, planes, planes), (1, planes, 4 * planes)], 1):
                    found[f"{path}conv{k}.weight"] = (size, size, a, b)
                    norm(f"{path}bn{k}", b)
                if j == 0:
                    found[f"{path}downsample.0.weight"] = (1, 1, wide, 4 * planes)
                    norm(f"{path}downsample.1", 4 * planes)
                wide = 4 * planes
        linear("fc", 2048, 1000)
    else:
        found |= {"class_token": (1, 1, 768), "encoder.pos_embedding": (1, 197, 768)}
        found |= {"conv_proj.weight": (16, 16, 3, 768), "conv_proj.bias": (768,)}
        for i in range(12):
            path = f"encoder.layers.encoder_layer_{i}."
            norm(f"{path}ln_1", 768)
            norm(f"{path}ln_2", 768)
            linear(f"{path}self_attention.in_proj", 768, 2304)
            linear(f"{path}self_attention.out_proj", 768, 768)
            linear(f"{path}mlp.0", 768, 3072)
            linear(f"{path}mlp.3", 3072, 768)
        norm("encoder.ln", 768)
        linear("heads.head", 768, 1000)
    return found


def random_weights(name: str) -> dict:
    import numpy as np

    generator = np.random.default_rng(0)
    found = {}
    for path, shape in shapes(name).items():
        values = generator.standard_normal(shape, dtype=np.float32)
        if path.endswith("scale"):
            values = 0.5 + 0.05 * values
        elif len(shape) >= 2 and path.endswith("weight"):
            values *= (2.0 / np.prod(shape[:-1])) ** 0.5
        else:
            values *= 0.02
        found[path] = values
    return found


def weights_of(name: str, model) -> dict:
    """torchvision's, for `--check`."""
    import numpy as np

    state = {k: v.numpy() for k, v in model.state_dict().items()}
    found = {}
    for path, shape in shapes(name).items():
        stem, last = path.rsplit(".", 1) if "." in path else ("", path)
        if last in ["scale", "shift"]:
            scale, shift = state[f"{stem}.weight"], state[f"{stem}.bias"]
            if f"{stem}.running_var" in state:
                scale = scale / np.sqrt(state[f"{stem}.running_var"] + EPS_NORM)
                shift = shift - state[f"{stem}.running_mean"] * scale
            value = scale if last == "scale" else shift
        else:
            value = state[path.replace("in_proj.", "in_proj_")]
            if last == "weight":
                value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T
        assert value.shape == shape, path
        found[path] = np.ascontiguousarray(value)
    return found


def resnet50(w, x):
    import jax
    from jax import lax
    from jax import numpy as jnp

    def conv(x, path: str, stride: int = 1):
        kernel = w[f"{path}.weight"]
        pad = kernel.shape[0] // 2
        return lax.conv_general_dilated(
            x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def norm(x, path: str):
        return x * w[f"{path}.scale"] + w[f"{path}.shift"]

    x = jax.nn.relu(norm(conv(x, "conv1", 2), "bn1"))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    for i, depth in enumerate(DEPTHS):
        for j in range(depth):
            path = f"layer{i + 1}.{j}."
            stride = 2 if i > 0 and j == 0 else 1
            y = jax.nn.relu(norm(conv(x, f"{path}conv1"), f"{path}bn1"))
            y = jax.nn.relu(norm(conv(y, f"{path}conv2", stride), f"{path}bn2"))
            y = norm(conv(y, f"{path}conv3"), f"{path}bn3")
            if j == 0:
                x = norm(conv(x, f"{path}downsample.0", stride), f"{path}downsample.1")
            x = jax.nn.relu(x + y)
    return x.mean((1, 2)) @ w["fc.weight"] + w["fc.bias"]


def vit_b_16(w, x):
    import jax
    from jax import numpy as jnp

    def linear(x, path: str):
        return x @ w[f"{path}.weight"] + w[f"{path}.bias"]

    def norm(x, path: str):
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS_LAYER)
        return x * w[f"{path}.scale"] + w[f"{path}.shift"]

    b = x.shape[0]
    patches = x.reshape(b, 14, 16, 14, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, 196, 768)
    x = patches @ w["conv_proj.weight"].reshape(768, 768) + w["conv_proj.bias"]
    x = jnp.concatenate([jnp.broadcast_to(w["class_token"], (b, 1, 768)), x], axis=1) + w["encoder.pos_embedding"]
    for i in range(12):
        path = f"encoder.layers.encoder_layer_{i}."
        qkv = linear(norm(x, f"{path}ln_1"), f"{path}self_attention.in_proj")
        q, k, v = qkv.reshape(b, 197, 3, 12, 64).transpose(2, 0, 3, 1, 4)
        scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8.0, axis=-1)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(b, 197, 768)
        x = x + linear(mixed, f"{path}self_attention.out_proj")
        y = jax.nn.gelu(linear(norm(x, f"{path}ln_2"), f"{path}mlp.0"), approximate=False)
        x = x + linear(y, f"{path}mlp.3")
    return linear(norm(x, "encoder.ln")[:, 0], "heads.head")


MODELS = dict(resnet50=resnet50, vit_b_16=vit_b_16)


def jax_run(given):
    import jax
    import numpy as np

    weights = jax.device_put(random_weights(given.model))
    x = np.random.default_rng(1).standard_normal((given.batch, 224, 224, 3), dtype=np.float32)
    x = jax.device_put(x)
    model = jax.jit(MODELS[given.model])

    def run():
        model(weights, x).block_until_ready()

    return run


def check(given) -> None:
    import jax
    import torch

    model = torch_model(given.model)
    if given.model == "resnet50":  # statistics of its own input, or activations grow without bound
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.momentum = None
            model.train()(torch.randn(8, 3, 224, 224))
            model.eval()
    x = torch.randn(2, 3, 224, 224)
    with torch.inference_mode():
        expected = model(x).numpy()
    got = jax.jit(MODELS[given.model])(weights_of(given.model, model), x.permute(0, 2, 3, 1).numpy())
    print(f"largest difference {abs(got - expected).max():.2e} of values to {abs(expected).max():.2e}")


def main() -> None:
    arguments = argparse.ArgumentParser(description="Measures ResNet-50 and ViT-B/16 with PyTorch or JAX.")
    arguments.add_argument("--framework", choices=["torch", "jax"], default="torch")
    arguments.add_argument("--form", choices=["eager", "channels_last", "compile"], default="eager")
    arguments.add_argument("--model", choices=list(MODELS), default="resnet50")
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--runs", type=int, default=10)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    # XLA takes as many threads as it is allowed cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    os.environ["JAX_PLATFORMS"] = "cpu"
    if given.check:
        return check(given)

    run = torch_run(given) if given.framework == "torch" else jax_run(given)
    times = []
    for _ in range(given.runs + 1):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    print(
        json.dumps(
            dict(
                framework=given.framework,
                form=given.form if given.framework == "torch" else "jit",
                model=given.model,
                batch=given.batch,
                threads=given.threads,
                first_s=round(times[0], 4),
                median_s=round(statistics.median(times[1:]), 4),
                min_s=round(min(times[1:]), 4),
                peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            )
        )
    )


if __name__ == "__main__":
    main()
