"""PyTorch rows of single operations: OPS are functions for inference, with their arguments; STEPS are complete runs."""

from dataclasses import dataclass
from typing import Callable

import torch
from torch.nn import functional as F


@dataclass
class Randoms:
    """Creates the inputs and weights of a row."""

    device: torch.device
    dtype: torch.dtype

    def __call__(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype) * scale


def compiled(function: Callable, device: torch.device, train: bool = False) -> Callable:
    """Compiles a function; on a GPU with its kernels in a CUDA graph, the usual choice for short passes."""
    return torch.compile(function, mode="reduce-overhead" if device.type == "cuda" and not train else None)


def inference(function: Callable, arguments: list, compile: bool) -> Callable[[], torch.Tensor]:
    if compile:
        function = compiled(function, arguments[0].device)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return function(*arguments)

    return run


def gemm(row: dict, randn: Randoms):
    return torch.mm, [randn(row["m"], row["k"]), randn(row["k"], row["n"])]


def activation(row: dict, randn: Randoms):
    return getattr(F, row["function"]), [randn(row["rows"], row["columns"])]


def chain(row: dict, randn: Randoms):
    f, columns = getattr(F, row["function"]), row["columns"]
    arguments = [randn(row["rows"], columns), randn(columns), randn(columns)]
    return lambda x, scale, shift: f(x * scale + shift) + x, arguments


def softmax(row: dict, randn: Randoms):
    return lambda x: torch.softmax(x, dim=-1), [randn(row["rows"], row["columns"])]


def layer_norm(row: dict, randn: Randoms):
    columns = row["columns"]
    arguments = [randn(row["rows"], columns), randn(columns), randn(columns)]
    return lambda x, scale, shift: F.layer_norm(x, (columns,), scale, shift, 1e-5), arguments


def ffn(row: dict, randn: Randoms):
    width, hidden = row["width"], row["hidden"]

    def forward(x, w_up, b_up, w_down, b_down):
        return F.linear(F.gelu(F.linear(x, w_up, b_up)), w_down, b_down)

    up = [randn(hidden, width, scale=width**-0.5), randn(hidden)]
    down = [randn(width, hidden, scale=hidden**-0.5), randn(width)]
    return forward, [randn(row["rows"], width), *up, *down]


def mha(row: dict, randn: Randoms):
    batch, tokens, width, heads, causal = (row[key] for key in ["batch", "tokens", "width", "heads", "causal"])

    def forward(x, w_qkv, b_qkv, w_out, b_out):
        qkv = F.linear(x, w_qkv, b_qkv).view(batch, tokens, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return F.linear(mixed.transpose(1, 2).reshape(batch, tokens, width), w_out, b_out)

    scale = width**-0.5
    weights = [randn(3 * width, width, scale=scale), randn(3 * width), randn(width, width, scale=scale), randn(width)]
    return forward, [randn(batch, tokens, width), *weights]


def attention(row: dict, randn: Randoms):
    shape = [row["batch"], row["heads"], row["tokens"], row["head_dim"]]
    causal = row["causal"]
    arguments = [randn(*shape), randn(*shape), randn(*shape)]
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), arguments


def conv(row: dict, randn: Randoms):
    fan_in = row["in"] * row["kernel"] ** 2
    x = randn(row["batch"], row["in"], row["size"], row["size"])
    weight = randn(row["out"], row["in"], row["kernel"], row["kernel"], scale=fan_in**-0.5)
    return lambda x, w: F.conv2d(x, w, stride=row["stride"], padding=row["padding"]), [x, weight]


def rnn_forward(layer: torch.nn.Module, x: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """Returns the hidden states of all steps, zero after the end of each sequence; the padded tensor itself if all have
    the same length."""
    if lengths is None:
        return layer(x)[0]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    return torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0], total_length=x.shape[0])[0]


def rnn(row: dict, randn: Randoms) -> Callable[[], object]:
    """A recurrent layer, forward only or with the gradients of its weights."""
    layer = dict(lstm=torch.nn.LSTM, gru=torch.nn.GRU)[row["cell"]](row["inputs"], row["hidden"])
    layer = layer.to(randn.device, randn.dtype)
    x = randn(row["steps"], row["batch"], row["inputs"])
    dy = randn(row["steps"], row["batch"], row["hidden"])
    # Always on the CPU, as packing requires.
    lengths = None if row["lengths"] is None else torch.tensor(row["lengths"])

    def forward_and_backward() -> None:
        layer.zero_grad()
        (rnn_forward(layer, x, lengths) * dy).sum().backward()

    return forward_and_backward if row["train"] else inference(rnn_forward, [layer, x, lengths], False)


def adamw(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, fused=True)


def optimizer(row: dict, randn: Randoms) -> Callable[[], object]:
    parameters = [torch.nn.Parameter(randn(*shape)) for shape in row["shapes"]]
    for parameter in parameters:
        parameter.grad = randn(*parameter.shape)
    return adamw(parameters).step


def ffn_step(row: dict, randn: Randoms, compile: bool) -> Callable[[], object]:
    """Computes loss, gradients and AdamW of a feed-forward block, and reads the loss."""
    forward, (x, *weights) = ffn(row, randn)
    parameters = [torch.nn.Parameter(weight) for weight in weights]
    y = randn(row["rows"], row["width"])
    rule = adamw(parameters)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((forward(x, *parameters) - y) ** 2).mean()

    loss = compiled(loss, randn.device, train=True) if compile else loss

    def run() -> float:
        rule.zero_grad()
        value = loss(x, y)
        value.backward()
        rule.step()
        return value.item()

    return run


OPS = dict(
    gemm=gemm,
    activation=activation,
    chain=chain,
    softmax=softmax,
    layer_norm=layer_norm,
    ffn=ffn,
    mha=mha,
    attention=attention,
    conv=conv,
)
STEPS = dict(rnn=rnn, optimizer=optimizer)
COMPILED_STEPS = dict(ffn_step=ffn_step)
