"""A bench worker with PyTorch, whose models are those of transformers and torchvision; `protocol.py` describes the
protocol.

    python benches/peers/torch_peer.py '{"row": {...}, "form": "eager", "threads": 2, "device": "cpu", "dtype": "f32"}'

Forms are `eager`, `compile` (torch.compile with its defaults, of the function or the model), `channels_last` (the
memory format, for images), and for decoding `generate` and `generate_static` (transformers' `generate` with a growing
cache, or with a fixed-size cache, for which it compiles; `eager` is a plain loop). float32 products have PyTorch's
default precision, on GPUs too, unless the specification has a `precision`: `highest`, or `high`, with which products
and convolutions may round to TF32. A model trained in bf16 has its weights, gradients and optimizer state in bf16.
"""

import os

from protocol import Unsupported, Work, serve

# Models are created from configurations or loaded from directories, so the hub is not needed.
os.environ["HF_HUB_OFFLINE"] = "1"

IMAGES = ["conv", "resnet"]
# Calls of C++ libraries, Python loops, loading and vmap do not benefit from torch.compile.
EAGER_ONLY = ["rnn", "decode", "optimizer", "load", "start", "vit_per_example"]


def check(row: dict, spec: dict, known: list[str]) -> None:
    """Raises Unsupported for rows and options that this peer does not have."""
    import torch

    kind, form = row["kind"], spec["form"]
    if kind not in known:
        raise Unsupported(f"no rows of kind {kind}")
    if form not in ["eager", "compile", "channels_last", "generate", "generate_static"]:
        raise Unsupported(f"PyTorch has no form {form}")
    if (form.startswith("generate") and kind != "decode") or (form == "channels_last" and kind not in IMAGES) or (form == "compile" and kind in EAGER_ONLY):
        raise Unsupported(f"{kind} has no form {form}")
    if spec["device"] == "cuda" and not torch.cuda.is_available():
        raise Unsupported("PyTorch finds no CUDA device")


def prepare(spec: dict) -> Work:
    import torch

    import torch_models
    import torch_ops

    row, form, device = spec["row"], spec["form"], torch.device(spec["device"])
    if device.type == "cuda":
        device = torch.device("cuda", spec.get("device_index", 0))
    check(row, spec, ["decode", *torch_ops.OPS, *torch_ops.STEPS, *torch_ops.COMPILED_STEPS, *torch_models.MODELS, *torch_models.TASKS])
    torch.set_num_threads(spec["threads"])
    torch.manual_seed(0)
    if "precision" in spec:
        rounds = dict(highest=False, high=True)[spec["precision"]]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounds
    torch.backends.cudnn.benchmark = True  # Recommended for constant sizes.
    dtype = dict(f32=torch.float32, bf16=torch.bfloat16)[spec["dtype"]]
    kind = row["kind"]

    if kind in torch_ops.OPS:
        function, arguments = torch_ops.OPS[kind](row, torch_ops.Randoms(device, dtype))
        if form == "channels_last":
            arguments = [x.to(memory_format=torch.channels_last) for x in arguments]
        run = torch_ops.inference(function, arguments, form == "compile")
    elif kind in torch_ops.STEPS:
        run = torch_ops.STEPS[kind](row, torch_ops.Randoms(device, dtype))
    elif kind in torch_ops.COMPILED_STEPS:
        run = torch_ops.COMPILED_STEPS[kind](row, torch_ops.Randoms(device, dtype), form == "compile")
    elif kind in torch_models.MODELS:
        run = torch_models.model_run(row, form, device, dtype)
    elif kind == "decode":
        run = torch_models.decode(row, form, device, dtype)
    else:
        run = torch_models.TASKS[kind](row, device, dtype)

    cuda = device.type == "cuda"

    def synchronised() -> None:
        run()
        torch.cuda.synchronize()

    return Work(
        version=f"PyTorch {torch.__version__.split('+')[0]}",
        run=synchronised if cuda else run,
        device_peak=torch.cuda.max_memory_allocated if cuda else lambda: None,
    )


if __name__ == "__main__":
    serve(prepare)
