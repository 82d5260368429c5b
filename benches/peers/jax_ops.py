"""JAX rows of single operations: OPS are pure functions to jit, with their arguments; STEPS are complete runs."""

from dataclasses import dataclass, field
from functools import partial
from typing import Callable

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp


@dataclass
class Randoms:
    """Creates inputs and weights on the host, because JAX would compile its generator for each shape."""

    dtype: np.dtype
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __call__(self, *shape: int, scale: float = 1.0) -> jax.Array:
        values = self.generator.standard_normal(shape, dtype=np.float32)
        return jnp.asarray(values * np.float32(scale), self.dtype)

    def integers(self, below: int, *shape: int) -> jax.Array:
        return jnp.asarray(self.generator.integers(below, size=shape, dtype=np.int32))


def inference(function: Callable, arguments: list) -> Callable[[], object]:
    function = jax.jit(function)
    return lambda: jax.block_until_ready(function(*arguments))


def linear(p: dict, x: jax.Array) -> jax.Array:
    y = x @ p["weight"]
    return y + p["bias"] if "bias" in p else y


def normed(p: dict, x: jax.Array, eps: float = 1e-5) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * p["scale"] + p["shift"]


def gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


def attend(q, k, v, causal: bool = False, window: int | None = None, scale: float | None = None) -> jax.Array:
    """Attention of [batch, tokens, heads, size], with fewer key and value heads for grouped queries.

    On a CPU an explicit softmax with heads first is faster than jax.nn.dot_product_attention, by 10 to 50 percent at
    the sizes of GPT-2 and ViT-B/16; on a GPU the library uses cuDNN's kernel for half precision.
    """
    batch, tokens, heads, size = q.shape
    scale = size**-0.5 if scale is None else scale
    if jax.default_backend() != "cpu":
        return jax.nn.dot_product_attention(
            q,
            k,
            v,
            is_causal=causal,
            scale=scale,
            local_window_size=None if window is None else (window - 1, 0),
            implementation="cudnn" if q.dtype == jnp.bfloat16 else None,
        )
    groups = k.shape[2]
    q = q.reshape(batch, tokens, groups, heads // groups, size).transpose(0, 2, 3, 1, 4)
    k, v = (x.transpose(0, 2, 1, 3)[:, :, None] for x in (k, v))
    mixed = weigh(q * scale, k, v, causal, window)
    return mixed.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads, size)


def weigh(q, k, v, causal: bool, window: int | None = None) -> jax.Array:
    """Returns softmax(scores) @ values, for [.., tokens, size] with queries scaled already."""
    tokens = q.shape[-2]
    scores = q @ k.swapaxes(-1, -2)
    if causal:
        distance = np.arange(tokens)[:, None] - np.arange(tokens)
        seen = (distance >= 0) & (distance < (window or tokens))
        scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    return jax.nn.softmax(scores, axis=-1) @ v


def self_attention(p: dict, x: jax.Array, heads: int, **settings) -> jax.Array:
    """Self-attention with projections: one product for queries, keys and values, and an output projection."""
    batch, tokens, width = x.shape
    qkv = linear(p["qkv"], x).reshape(batch, tokens, 3, heads, width // heads)
    mixed = attend(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], **settings)
    return linear(p["out"], mixed.reshape(batch, tokens, width))


def convolution(x: jax.Array, kernel: jax.Array, stride: int, padding: int) -> jax.Array:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=names)


def gemm(row: dict, randn: Randoms):
    return jnp.matmul, [randn(row["m"], row["k"]), randn(row["k"], row["n"])]


FUNCTIONS = dict(selu=jax.nn.selu, gelu=gelu)


def activation(row: dict, randn: Randoms):
    return FUNCTIONS[row["function"]], [randn(row["rows"], row["columns"])]


def chain(row: dict, randn: Randoms):
    f, columns = FUNCTIONS[row["function"]], row["columns"]
    arguments = [randn(row["rows"], columns), randn(columns), randn(columns)]
    return lambda x, scale, shift: f(x * scale + shift) + x, arguments


def softmax(row: dict, randn: Randoms):
    return jax.nn.softmax, [randn(row["rows"], row["columns"])]


def layer_norm(row: dict, randn: Randoms):
    p = dict(scale=randn(row["columns"]), shift=randn(row["columns"]))
    return normed, [p, randn(row["rows"], row["columns"])]


def random_linear(inputs: int, outputs: int, randn: Randoms) -> dict:
    return dict(weight=randn(inputs, outputs, scale=inputs**-0.5), bias=randn(outputs))


def ffn(row: dict, randn: Randoms):
    width, hidden = row["width"], row["hidden"]
    p = dict(up=random_linear(width, hidden, randn), down=random_linear(hidden, width, randn))
    return lambda p, x: linear(p["down"], gelu(linear(p["up"], x))), [p, randn(row["rows"], width)]


def mha(row: dict, randn: Randoms):
    width = row["width"]
    p = dict(qkv=random_linear(width, 3 * width, randn), out=random_linear(width, width, randn))
    x = randn(row["batch"], row["tokens"], width)
    return lambda p, x: self_attention(p, x, row["heads"], causal=row["causal"]), [p, x]


def attention(row: dict, randn: Randoms):
    batch, tokens, heads, size, causal = (row[name] for name in ["batch", "tokens", "heads", "head_dim", "causal"])
    # Heads first for the explicit softmax.
    if jax.default_backend() == "cpu":
        shape, function = [batch, heads, tokens, size], lambda q, k, v: weigh(q * size**-0.5, k, v, causal)
    else:
        shape, function = [batch, tokens, heads, size], lambda q, k, v: attend(q, k, v, causal)
    return function, [randn(*shape), randn(*shape), randn(*shape)]


def conv(row: dict, randn: Randoms):
    fan_in = row["in"] * row["kernel"] ** 2
    x = randn(row["batch"], row["size"], row["size"], row["in"])
    kernel = randn(row["kernel"], row["kernel"], row["in"], row["out"], scale=fan_in**-0.5)
    return lambda x, kernel: convolution(x, kernel, row["stride"], row["padding"]), [x, kernel]


def rnn_forward(p: dict, x: jax.Array, lengths: jax.Array | None, cell: str, unroll: int) -> tuple:
    """Returns the hidden states of all steps, zero after the end of each sequence, and the last state. Without lengths
    there are no masks."""
    steps, batch, _ = x.shape
    hidden = p["w_hh"].shape[0]
    lstm = cell == "lstm"
    # The products with the inputs of all steps are one product before the loop. The GRU's second bias must stay
    # within the loop.
    projected = x @ p["w_ih"] + (p["b_ih"] + p["b_hh"] if lstm else p["b_ih"])

    def next_state(state: tuple, projected: jax.Array) -> tuple:
        if lstm:
            h, c = state
            i, f, g, o = jnp.split(projected + h @ p["w_hh"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(c), c
        (h,) = state
        product = h @ p["w_hh"] + p["b_hh"]
        r, z = jnp.split(jax.nn.sigmoid(projected[:, : 2 * hidden] + product[:, : 2 * hidden]), 2, axis=-1)
        n = jnp.tanh(projected[:, 2 * hidden :] + r * product[:, 2 * hidden :])
        return (n + z * (h - n),)

    def step(state: tuple, inputs: tuple) -> tuple:
        projected, valid = inputs
        new = next_state(state, projected)
        if valid is None:
            return new, new[0]
        valid = valid[:, None]
        return tuple(jnp.where(valid, a, b) for a, b in zip(new, state)), jnp.where(valid, new[0], 0)

    start = (jnp.zeros((batch, hidden), x.dtype),) * (2 if lstm else 1)
    valid = None if lengths is None else jnp.arange(steps)[:, None] < lengths
    state, y = lax.scan(step, start, (projected, valid), unroll=unroll)
    return y, state


def rnn(row: dict, randn: Randoms) -> Callable[[], object]:
    """A recurrent layer, forward only or with the gradients of its weights."""
    cell, hidden, batch, train = row["cell"], row["hidden"], row["batch"], row["train"]
    wide, scale = dict(lstm=4, gru=3)[cell] * hidden, hidden**-0.5
    parameters = dict(
        w_ih=randn(row["inputs"], wide, scale=scale),
        w_hh=randn(hidden, wide, scale=scale),
        b_ih=randn(wide, scale=scale),
        b_hh=randn(wide, scale=scale),
    )
    x = randn(row["steps"], batch, row["inputs"])
    dy = randn(row["steps"], batch, hidden)
    lengths = None if row["lengths"] is None else jnp.array(row["lengths"])
    # Fastest of 1, 2, 4 and 10 on two cores. Larger values slow the backward pass, and compilation takes minutes.
    unroll = 4 if train and batch == 1 and hidden >= 256 else 1

    def forward(p: dict, x: jax.Array, lengths: jax.Array | None) -> tuple:
        return rnn_forward(p, x, lengths, cell, unroll)

    def loss(p: dict, x: jax.Array, lengths: jax.Array | None, dy: jax.Array) -> jax.Array:
        return (forward(p, x, lengths)[0] * dy).sum()

    if train:
        return inference(jax.value_and_grad(loss), [parameters, x, lengths, dy])
    return inference(forward, [parameters, x, lengths])


def adamw() -> optax.GradientTransformation:
    return optax.adamw(1e-4, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01)


def optimizer(row: dict, randn: Randoms) -> Callable[[], object]:
    rule = adamw()
    parameters = [randn(*shape) for shape in row["shapes"]]
    gradients = [randn(*shape) for shape in row["shapes"]]

    def step(carried: tuple, gradients: list) -> tuple:
        parameters, state = carried
        updates, state = rule.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    step = jax.jit(step, donate_argnums=0)
    carried = parameters, rule.init(parameters)

    def run() -> None:
        nonlocal carried
        carried = jax.block_until_ready(step(carried, gradients))

    return run


def ffn_step(row: dict, randn: Randoms) -> Callable[[], object]:
    """Computes loss, gradients and AdamW of a feed-forward block, and reads the loss."""
    forward, (parameters, x) = ffn(row, randn)
    y = randn(row["rows"], row["width"])
    rule = adamw()

    @partial(jax.jit, donate_argnums=0)
    def step(carried: tuple, x: jax.Array, y: jax.Array) -> tuple:
        parameters, state = carried
        loss, gradients = jax.value_and_grad(lambda p: jnp.mean((forward(p, x) - y) ** 2))(parameters)
        updates, state = rule.update(gradients, state, parameters)
        return (optax.apply_updates(parameters, updates), state), loss

    carried = parameters, rule.init(parameters)

    def run() -> float:
        nonlocal carried
        carried, loss = step(carried, x, y)
        return float(loss)

    return run


def while_loop(row: dict, randn: Randoms):
    def repeat(x: jax.Array) -> jax.Array:
        step = lambda carry: (carry[0] + 1, carry[1] * 0.999 + 0.5)
        return lax.while_loop(lambda carry: carry[0] < row["steps"], step, (jnp.int32(0), x))[1]

    return repeat, [randn(1)]


def scan(row: dict, randn: Randoms):
    def filtered(init: jax.Array, xs: jax.Array) -> tuple:
        def step(c: jax.Array, x: jax.Array) -> tuple:
            c = jnp.tanh(c * 0.5 + x)
            return c, c

        return lax.scan(step, init, xs)

    gradients = jax.grad(lambda init, xs: filtered(init, xs)[1].sum(), argnums=(0, 1))
    return gradients if row["train"] else filtered, [randn(row["size"]), randn(row["steps"], row["size"])]


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
    scan=scan,
)
OPS["while"] = while_loop
STEPS = dict(rnn=rnn, optimizer=optimizer, ffn_step=ffn_step)
