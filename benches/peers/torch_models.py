"""PyTorch rows of models: transformers' and torchvision's, imported only for a row that needs them."""

from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

from torch_ops import adamw, compiled, inference

TRANSFORMERS = dict(gpt2="GPT2", gpt_neo="GPTNeo", llama="Llama", bert="Bert")
NO_DROPOUT = dict(
    gpt2=dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    gpt_neo=dict(resid_dropout=0.0, embed_dropout=0.0, attention_dropout=0.0),
    llama=dict(attention_dropout=0.0),
    bert=dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.0, num_labels=2),
)
# Special tokens whose default ids are outside a small vocabulary.
NO_MARKS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)


class Bottleneck(nn.Module):
    """torchvision's bottleneck block, with its stride at the 3x3 convolution."""

    def __init__(self, inputs: int, planes: int, stride: int, downsample: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes)
        self.downsample = None
        if downsample:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """torchvision's bottleneck ResNet with its parameter names, and with a base width, which torchvision lacks."""

    def __init__(self, depths: list[int], width: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for i, depth in enumerate(depths):
            planes, blocks = width * 2**i, []
            for j in range(depth):
                blocks.append(Bottleneck(inputs, planes, 2 if i > 0 and j == 0 else 1, j == 0))
                inputs = 4 * planes
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.max_pool2d(x, 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def vit(row: dict) -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=row["size"],
        patch_size=row["patch"],
        num_layers=row["depth"],
        num_heads=row["heads"],
        hidden_dim=row["width"],
        mlp_dim=row["mlp"],
        num_classes=row["classes"],
    )


def transformer(row: dict) -> nn.Module:
    """Returns transformers' model of a configuration, with the head of the row."""
    import transformers

    kind = row["kind"]
    name = TRANSFORMERS[kind]
    config = getattr(transformers, f"{name}Config")(**row["config"], **NO_DROPOUT[kind], **NO_MARKS, use_cache=False)
    head = "ForCausalLM" if kind != "bert" else "ForSequenceClassification" if row["train"] else "Model"
    head = {"GPT2ForCausalLM": "GPT2LMHeadModel"}.get(name + head, name + head)
    # transformers' GPT-Neo does not support scaled_dot_product_attention.
    attention = "eager" if kind == "gpt_neo" else "sdpa"
    return getattr(transformers, head)._from_config(config, attn_implementation=attention)


def outputs(kind: str, train: bool) -> Callable:
    """Returns a function of a model and its input to the output of the row: the logits, or BERT's hidden states."""
    if kind in ["resnet", "vit"]:
        return lambda model, x: model(x)
    if kind == "bert" and not train:
        return lambda model, ids: model(ids)[:2]
    return lambda model, ids: model(ids).logits


MODELS = dict(
    resnet=lambda row: ResNet(row["depths"], row["widths"], row["classes"]),
    vit=vit,
    bert=transformer,
    gpt2=transformer,
    gpt_neo=transformer,
    llama=transformer,
)


def fill(model: nn.Module) -> nn.Module:
    """Randomises biases and other parameters that are initialised to zero: zeros may be faster."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or not parameter.any():
                parameter.normal_(std=0.02)
    return model


def inputs(row: dict, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images or ids, and random labels: one class per example, or for language models one id per position."""
    batch, kind = row["batch"], row["kind"]
    if kind in ["resnet", "vit"]:
        x = torch.randn(batch, 3, row["size"], row["size"], device=device, dtype=dtype)
        return x, torch.randint(row["classes"], (batch,), device=device)
    vocabulary, shape = row["config"]["vocab_size"], (batch, row["tokens"])
    ids = torch.randint(vocabulary, shape, device=device)
    labels = torch.randint(2, (batch,)) if kind == "bert" else torch.randint(vocabulary, shape)
    return ids, labels.to(device)


def trainer(model: nn.Module, output: Callable, x: torch.Tensor, labels: torch.Tensor) -> Callable[[], float]:
    """Returns a run of one training step, which returns its loss."""
    optimizer = adamw(list(model.parameters()))
    labels = labels.flatten()

    def step() -> float:
        logits = output(model, x)
        loss = F.cross_entropy(logits.view(labels.numel(), -1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def model_run(row: dict, form: str, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    kind, train = row["kind"], row["train"]
    model = fill(MODELS[kind](row)).train(train).to(device, dtype)
    x, labels = inputs(row, device, dtype)
    if form == "channels_last":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    elif form == "compile":
        model = compiled(model, device, train)
    output = outputs(kind, train)
    return trainer(model, output, x, labels) if train else inference(output, [model, x], False)


def greedy(model: nn.Module, prompt: torch.Tensor, new_tokens: int) -> list[list[int]]:
    """Greedy decoding in a plain loop, because `generate` spends one or two milliseconds per token on bookkeeping. As in
    `generate` and grove, the host reads each token, as if to show it."""
    ids, cache, found = prompt, None, []
    with torch.inference_mode():
        for _ in range(new_tokens):
            out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
            found.append(ids.flatten().tolist())
    return found


def decode(row: dict, form: str, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    kind = "gpt2" if "n_embd" in row["config"] else "llama"
    model = fill(transformer(dict(kind=kind, config=row["config"]))).eval().to(device, dtype)
    prompt = torch.randint(row["config"]["vocab_size"], (row["batch"], row["prompt"]), device=device)
    if form == "eager":
        return lambda: greedy(model, prompt, row["new_tokens"])
    options = dict(max_new_tokens=row["new_tokens"], min_new_tokens=row["new_tokens"], do_sample=False, use_cache=True, pad_token_id=0)
    if form == "generate_static":
        # transformers compiles the decoding step if the cache has a fixed size.
        options["cache_implementation"] = "static"
    mask = torch.ones_like(prompt)
    return lambda: model.generate(prompt, attention_mask=mask, **options)


def reader(path: str, device: torch.device, dtype: torch.dtype) -> Callable[[], nn.Module]:
    from transformers import GPT2LMHeadModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    return lambda: GPT2LMHeadModel.from_pretrained(path, dtype=dtype).to(device)


def load(row: dict, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """Loads a directory and sums all weights, because a mapped file is not read before its values are used."""
    read = reader(row["path"], device, dtype)

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            return [parameter.sum() for parameter in read().parameters()]

    return run


def start(row: dict, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """Loads a directory and computes the logits of one text."""
    read = reader(row["path"], device, dtype)
    ids = torch.randint(row["config"]["vocab_size"], (1, row["tokens"]), device=device)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return read().eval()(ids, use_cache=False).logits

    return run


def vit_per_example(row: dict, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """Computes per-example gradients with torch.func."""
    from torch.func import functional_call, grad, vmap
    from torch.nn.attention import SDPBackend, sdpa_kernel

    model = fill(vit(row)).to(device, dtype)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    x, labels = inputs(row | dict(kind="vit"), device, dtype)

    def loss(parameters: dict, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), label[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def run() -> dict:
        # The gradient of the fused kernel has no batching rule; vmap would run it in a loop.
        with sdpa_kernel(SDPBackend.MATH):
            return gradients(parameters, x, labels)

    return run


TASKS = dict(load=load, start=start, vit_per_example=vit_per_example)
