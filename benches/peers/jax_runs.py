"""Runs of JAX models: inference, training steps, decoding with a cache, and loading weights."""

import json
from functools import partial
from pathlib import Path
from typing import Callable

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp
from safetensors import safe_open

from jax_models import MODELS, gpt2, gpt2_shapes, mlp, resnet_training
from jax_ops import Randoms, adamw, inference, linear, normed
from protocol import Unsupported


def is_shape(x: object) -> bool:
    return isinstance(x, tuple)


def random_parameters(shapes: dict, randn: Randoms) -> dict:
    def random(path: tuple, shape: tuple) -> jax.Array:
        if path[-1] == jax.tree_util.DictKey("scale"):
            return 1 + randn(*shape, scale=0.05)
        return randn(*shape, scale=(2 / np.prod(shape[:-1])) ** 0.5 if len(shape) == 4 else 0.02)

    return jax.tree_util.tree_map_with_path(random, shapes, is_leaf=is_shape)


def inputs(row: dict, randn: Randoms) -> tuple[jax.Array, jax.Array]:
    """Returns images or ids, and random labels: one class per example, or for language models one id per position."""
    batch, kind = row["batch"], row["kind"]
    if kind in ["resnet", "vit"]:
        return randn(batch, row["size"], row["size"], 3), randn.integers(row["classes"], batch)
    vocabulary, shape = row["config"]["vocab_size"], (batch, row["tokens"])
    labels = randn.integers(2, batch) if kind == "bert" else randn.integers(vocabulary, *shape)
    return randn.integers(vocabulary, *shape), labels


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def first_statistics(shapes: dict) -> list[dict]:
    """Returns the initial running statistics of a ResNet's batch norms, in the order of use."""
    units = [shapes["stem"], *(unit for blocks in shapes["stages"] for block in blocks for unit in block)]
    widths = [unit["norm"]["scale"] for unit in units]
    return [dict(mean=jnp.zeros(width), variance=jnp.ones(width)) for width in widths]


def trainer(row: dict, parameters: dict, x: jax.Array, labels: jax.Array) -> Callable[[], float]:
    """Returns a run of one training step, which returns its loss. All buffers that the step updates are donated."""
    shapes, model = MODELS[row["kind"]]
    rule = adamw()
    resnet = row["kind"] == "resnet"

    def loss(parameters: dict, statistics: list | None, x: jax.Array, labels: jax.Array) -> tuple:
        if resnet:
            logits, statistics = resnet_training(parameters, statistics, x)
        else:
            logits = model(row, parameters, x)
        return cross_entropy(logits, labels), statistics

    @partial(jax.jit, donate_argnums=0)
    def step(carried: tuple, x: jax.Array, labels: jax.Array) -> tuple:
        parameters, statistics, state = carried
        gradients_of = jax.value_and_grad(loss, has_aux=True)
        (value, statistics), gradients = gradients_of(parameters, statistics, x, labels)
        updates, state = rule.update(gradients, state, parameters)
        return (optax.apply_updates(parameters, updates), statistics, state), value

    carried = parameters, first_statistics(shapes(row)) if resnet else None, rule.init(parameters)

    def run() -> float:
        nonlocal carried
        carried, value = step(carried, x, labels)
        jax.block_until_ready(carried)
        return float(value)

    return run


def model_run(row: dict, randn: Randoms) -> Callable[[], object]:
    shapes, model = MODELS[row["kind"]]
    parameters = random_parameters(shapes(row), randn)
    x, labels = inputs(row, randn)
    return trainer(row, parameters, x, labels) if row["train"] else inference(partial(model, row), [parameters, x])


def gpt2_cached(p: dict, ids: jax.Array, at: jax.Array | int, cache: list | None, heads: int, length: int) -> tuple:
    """Returns the next id after `ids` at the positions from `at` on, and the updated cache of [heads, `length`, size].

    Without a cache, `ids` are the prompt and attend only to each other, so that the cost of a prompt does not depend
    on `length`.
    """
    tokens, width = ids.shape[0], p["words"].shape[1]
    size = width // heads
    prompt = cache is None
    x = p["words"][ids] + lax.dynamic_slice_in_dim(p["positions"], at, tokens)
    seen = jnp.arange(tokens if prompt else length) <= at + jnp.arange(tokens)[:, None]
    new_cache = []
    for i, block in enumerate(p["blocks"]):
        q, k, v = linear(block["qkv"], normed(block["norm_1"], x)).reshape(tokens, 3, heads, size).transpose(1, 2, 0, 3)
        if prompt:
            new_cache.append(tuple(jnp.pad(new, [(0, 0), (0, length - tokens), (0, 0)]) for new in (k, v)))
        else:
            k, v = (lax.dynamic_update_slice_in_dim(old, new, at, 1) for old, new in zip(cache[i], (k, v)))
            new_cache.append((k, v))
        scores = jnp.where(seen, (q * size**-0.5) @ k.swapaxes(-1, -2), jnp.finfo(x.dtype).min)
        mixed = jax.nn.softmax(scores, axis=-1) @ v
        x = x + linear(block["out"], mixed.transpose(1, 0, 2).reshape(tokens, width))
        x = x + mlp(block, normed(block["norm_2"], x), jax.nn.gelu)
    logits = normed(p["norm"], x[-1]) @ p["words"].T
    return logits.argmax(-1).astype(jnp.int32)[None], new_cache


def decoder(parameters: dict, prompt: jax.Array, heads: int, new_tokens: int) -> Callable[[], list[int]]:
    """Greedy decoding with a cache of fixed size, which each step donates and returns."""
    length = prompt.shape[0] + new_tokens
    settings = dict(heads=heads, length=length)
    prefill = jax.jit(lambda p, ids: gpt2_cached(p, ids, 0, None, **settings))
    step = jax.jit(lambda p, ids, at, cache: gpt2_cached(p, ids, at, cache, **settings), donate_argnums=3)

    def run() -> list[int]:
        token, cache = prefill(parameters, prompt)
        found = []
        for at in range(prompt.shape[0], length - 1):
            following, cache = step(parameters, token, at, cache)
            # Read while the next step runs.
            found.append(token.item())
            token = following
        return [*found, token.item()]

    return run


def decode(row: dict, randn: Randoms) -> Callable[[], object]:
    config = row["config"]
    if row["batch"] != 1 or "n_embd" not in config:
        raise Unsupported("JAX decodes one text, by a GPT-2")
    parameters = random_parameters(gpt2_shapes(row), randn)
    prompt = randn.integers(config["vocab_size"], row["prompt"])
    return decoder(parameters, prompt, config["n_head"], row["new_tokens"])


def gpt2_parameters(tensor: Callable[[str], jax.Array], layers: int) -> dict:
    """Builds parameters from a function of transformers' names without prefix. GPT-2's linear layers are [in, out]."""

    def layer(path: str) -> dict:
        return dict(weight=tensor(f"{path}.weight"), bias=tensor(f"{path}.bias"))

    def norm(path: str) -> dict:
        return dict(scale=tensor(f"{path}.weight"), shift=tensor(f"{path}.bias"))

    def block(path: str) -> dict:
        return dict(
            norm_1=norm(f"{path}.ln_1"),
            qkv=layer(f"{path}.attn.c_attn"),
            out=layer(f"{path}.attn.c_proj"),
            norm_2=norm(f"{path}.ln_2"),
            up=layer(f"{path}.mlp.c_fc"),
            down=layer(f"{path}.mlp.c_proj"),
        )

    return dict(
        words=tensor("wte.weight"),
        positions=tensor("wpe.weight"),
        blocks=[block(f"h.{i}") for i in range(layers)],
        norm=norm("ln_f"),
    )


def read(path: str, dtype: np.dtype) -> dict:
    layers = json.loads((Path(path) / "config.json").read_text())["n_layer"]
    with safe_open(Path(path) / "model.safetensors", framework="numpy") as file:
        prefix = "" if "wte.weight" in file.keys() else "transformer."
        return gpt2_parameters(lambda name: jnp.asarray(file.get_tensor(prefix + name), dtype), layers)


def load(row: dict, randn: Randoms) -> Callable[[], object]:
    """Loads a directory and sums all weights, because the other peers need the sums to touch every byte."""
    sums = jax.jit(partial(jax.tree.map, jnp.sum))
    return lambda: jax.block_until_ready(sums(read(row["path"], randn.dtype)))


def start(row: dict, randn: Randoms) -> Callable[[], object]:
    """Loads a directory and computes the logits of one text."""
    model = jax.jit(partial(gpt2, row))
    ids = randn.integers(row["config"]["vocab_size"], 1, row["tokens"])
    return lambda: jax.block_until_ready(model(read(row["path"], randn.dtype), ids))


def vit_per_example(row: dict, randn: Randoms) -> Callable[[], object]:
    """Computes per-example gradients."""
    shapes, model = MODELS["vit"]
    parameters = random_parameters(shapes(row), randn)
    x, labels = inputs(row | dict(kind="vit"), randn)

    def loss(parameters: dict, x: jax.Array, label: jax.Array) -> jax.Array:
        return cross_entropy(model(row, parameters, x[None]), label[None])

    gradients = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    return lambda: jax.block_until_ready(gradients(parameters, x, labels))


TASKS = dict(decode=decode, load=load, start=start, vit_per_example=vit_per_example)
