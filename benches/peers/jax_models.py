"""JAX models as pure functions of their parameters, which are dicts and lists of arrays.

Every model has a function `*_shapes` of its row, which returns shapes in place of arrays, and a function of the
parameters and the images or ids. Weights of linear layers are [in, out], those of convolutions [h, w, in, out];
images are [batch, h, w, 3]. Layers are unrolled, because lax.scan over stacked layers prevents XLA from fusing across
them.
"""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from jax_ops import attend, convolution, gelu, linear, normed, self_attention


def linear_shapes(inputs: int, outputs: int, bias: bool = True) -> dict:
    return dict(weight=(inputs, outputs)) | (dict(bias=(outputs,)) if bias else {})


def norm_shapes(width: int) -> dict:
    return dict(scale=(width,), shift=(width,))


def block_shapes(width: int, hidden: int, qkv_bias: bool = True) -> dict:
    return dict(
        norm_1=norm_shapes(width),
        qkv=linear_shapes(width, 3 * width, qkv_bias),
        out=linear_shapes(width, width),
        norm_2=norm_shapes(width),
        up=linear_shapes(width, hidden),
        down=linear_shapes(hidden, width),
    )


def mlp(p: dict, x: jax.Array, activation=gelu) -> jax.Array:
    return linear(p["down"], activation(linear(p["up"], x)))


# ------------------------------------------------------------------------------------------------------------ images


def resnet_shapes(row: dict) -> dict:
    width = row["widths"]
    stages, inputs = [], width
    for i, depth in enumerate(row["depths"]):
        planes, blocks = width * 2**i, []
        for j in range(depth):
            sizes = [(1, 1, inputs, planes), (3, 3, planes, planes), (1, 1, planes, 4 * planes)]
            sizes += [(1, 1, inputs, 4 * planes)] if j == 0 else []
            blocks.append([dict(kernel=size, norm=norm_shapes(size[-1])) for size in sizes])
            inputs = 4 * planes
        stages.append(blocks)
    return dict(
        stem=dict(kernel=(7, 7, 3, width), norm=norm_shapes(width)),
        stages=stages,
        head=linear_shapes(inputs, row["classes"]),
    )


def resnet(p: dict, x: jax.Array, norm=lambda p, x: x * p["scale"] + p["shift"]) -> jax.Array:
    """Returns the logits. Without a `norm` for training, the running statistics are folded into scales and shifts."""

    def unit(p: dict, x: jax.Array, stride: int = 1) -> jax.Array:
        return norm(p["norm"], convolution(x, p["kernel"], stride, p["kernel"].shape[0] // 2))

    x = jax.nn.relu(unit(p["stem"], x, 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    for i, blocks in enumerate(p["stages"]):
        for j, (first, second, third, *shortcut) in enumerate(blocks):
            stride = 2 if i > 0 and j == 0 else 1
            y = unit(third, jax.nn.relu(unit(second, jax.nn.relu(unit(first, x)), stride)))
            x = jax.nn.relu(y + (unit(shortcut[0], x, stride) if shortcut else x))
    return linear(p["head"], x.mean((1, 2)))


def resnet_training(p: dict, running: list, x: jax.Array) -> tuple[jax.Array, list]:
    """Returns the logits with batch statistics, and the updated running statistics; `running` is in the order of use."""
    updated = []

    def norm(p: dict, x: jax.Array) -> jax.Array:
        old = running[len(updated)]
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        count = x.size // x.shape[-1]
        updated.append(
            dict(
                mean=0.9 * old["mean"] + 0.1 * lax.stop_gradient(mean),
                variance=0.9 * old["variance"] + 0.1 * lax.stop_gradient(variance) * (count / (count - 1)),
            )
        )
        return (x - mean) * (lax.rsqrt(variance + 1e-5) * p["scale"]) + p["shift"]

    return resnet(p, x, norm), updated


def vit_shapes(row: dict) -> dict:
    width = row["width"]
    return dict(
        patches=linear_shapes(3 * row["patch"] ** 2, width),
        class_token=(1, 1, width),
        positions=((row["size"] // row["patch"]) ** 2 + 1, width),
        blocks=[block_shapes(width, row["mlp"]) for _ in range(row["depth"])],
        norm=norm_shapes(width),
        head=linear_shapes(width, row["classes"]),
    )


def vit(row: dict, p: dict, x: jax.Array) -> jax.Array:
    batch, patch, side = x.shape[0], row["patch"], row["size"] // row["patch"]
    patches = x.reshape(batch, side, patch, side, patch, 3).transpose(0, 1, 3, 2, 4, 5).reshape(batch, side**2, -1)
    x = linear(p["patches"], patches)
    x = jnp.concatenate([jnp.broadcast_to(p["class_token"], (batch, 1, row["width"])), x], axis=1) + p["positions"]
    for block in p["blocks"]:
        x = x + self_attention(block, normed(block["norm_1"], x, 1e-6), row["heads"])
        x = x + mlp(block, normed(block["norm_2"], x, 1e-6))
    return linear(p["head"], normed(p["norm"], x[:, 0], 1e-6))


# --------------------------------------------------------------------------------------------------------------- texts


def bert_shapes(row: dict) -> dict:
    c = row["config"]
    width = c["hidden_size"]
    return dict(
        words=(c["vocab_size"], width),
        positions=(c["max_position_embeddings"], width),
        types=(c["type_vocab_size"], width),
        norm=norm_shapes(width),
        blocks=[block_shapes(width, c["intermediate_size"]) for _ in range(c["num_hidden_layers"])],
        pooler=linear_shapes(width, width),
    ) | (dict(head=linear_shapes(width, 2)) if row["train"] else {})


def bert(row: dict, p: dict, ids: jax.Array):
    """Returns the hidden states and the pooled state, or with a head in the parameters the logits of two classes."""
    x = p["words"][ids] + p["positions"][: ids.shape[1]] + p["types"][0]
    x = normed(p["norm"], x, 1e-12)
    for block in p["blocks"]:
        x = normed(block["norm_1"], x + self_attention(block, x, row["config"]["num_attention_heads"]), 1e-12)
        x = normed(block["norm_2"], x + mlp(block, x), 1e-12)
    pooled = jnp.tanh(linear(p["pooler"], x[:, 0]))
    return linear(p["head"], pooled) if "head" in p else (x, pooled)


def gpt2_shapes(row: dict) -> dict:
    c = row["config"]
    width = c["n_embd"]
    return dict(
        words=(c["vocab_size"], width),
        positions=(c["n_positions"], width),
        blocks=[block_shapes(width, 4 * width) for _ in range(c["n_layer"])],
        norm=norm_shapes(width),
    )


def gpt2(row: dict, p: dict, ids: jax.Array) -> jax.Array:
    x = p["words"][ids] + p["positions"][: ids.shape[1]]
    for block in p["blocks"]:
        x = x + self_attention(block, normed(block["norm_1"], x), row["config"]["n_head"], causal=True)
        x = x + mlp(block, normed(block["norm_2"], x), jax.nn.gelu)
    return normed(p["norm"], x) @ p["words"].T


def gpt_neo_shapes(row: dict) -> dict:
    c = row["config"]
    width = c["hidden_size"]
    hidden = c.get("intermediate_size") or 4 * width
    return dict(
        words=(c["vocab_size"], width),
        positions=(c["max_position_embeddings"], width),
        blocks=[block_shapes(width, hidden, qkv_bias=False) for _ in range(c["num_layers"])],
        norm=norm_shapes(width),
    )


def gpt_neo(row: dict, p: dict, ids: jax.Array) -> jax.Array:
    """As GPT-2, but scores are not scaled, and the layers that `attention_types` calls local use sliding-window
    attention."""
    c = row["config"]
    kinds = [kind for pattern, count in c["attention_types"] for _ in range(count) for kind in pattern]
    x = p["words"][ids] + p["positions"][: ids.shape[1]]
    for block, kind in zip(p["blocks"], kinds, strict=True):
        settings = dict(causal=True, scale=1.0, window=c["window_size"] if kind == "local" else None)
        x = x + self_attention(block, normed(block["norm_1"], x), c["num_heads"], **settings)
        x = x + mlp(block, normed(block["norm_2"], x), jax.nn.gelu)
    return normed(p["norm"], x) @ p["words"].T


def llama_shapes(row: dict) -> dict:
    c = row["config"]
    width, hidden = c["hidden_size"], c["intermediate_size"]
    shared = width // c["num_attention_heads"] * c["num_key_value_heads"]
    block = dict(
        norm_1=dict(scale=(width,)),
        qkv=linear_shapes(width, width + 2 * shared, False),
        out=linear_shapes(width, width, False),
        norm_2=dict(scale=(width,)),
        gate_up=linear_shapes(width, 2 * hidden, False),
        down=linear_shapes(hidden, width, False),
    )
    found = dict(
        words=(c["vocab_size"], width), blocks=[block] * c["num_hidden_layers"], norm=dict(scale=(width,))
    )
    return found if c["tie_word_embeddings"] else found | dict(head=linear_shapes(width, c["vocab_size"], False))


def llama(row: dict, p: dict, ids: jax.Array) -> jax.Array:
    c = row["config"]
    batch, tokens = ids.shape
    heads, shared = c["num_attention_heads"], c["num_key_value_heads"]
    width = c["hidden_size"]
    size = width // heads
    angles = np.arange(tokens)[:, None] * c["rope_theta"] ** (-np.arange(0, size, 2) / size)
    cos, sin = (f(angles)[:, None].astype(p["words"].dtype) for f in (np.cos, np.sin))

    def norm(p: dict, x: jax.Array) -> jax.Array:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * p["scale"]

    def rotate(x: jax.Array) -> jax.Array:
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x = p["words"][ids]
    for block in p["blocks"]:
        qkv = linear(block["qkv"], norm(block["norm_1"], x)).reshape(batch, tokens, heads + 2 * shared, size)
        q, k, v = jnp.split(qkv, [heads, heads + shared], axis=2)
        mixed = attend(rotate(q), rotate(k), v, causal=True)
        x = x + linear(block["out"], mixed.reshape(batch, tokens, width))
        gate, up = jnp.split(linear(block["gate_up"], norm(block["norm_2"], x)), 2, axis=-1)
        x = x + linear(block["down"], jax.nn.silu(gate) * up)
    x = norm(p["norm"], x)
    return linear(p["head"], x) if "head" in p else x @ p["words"].T


# Function of the shapes, and function of row, parameters and input.
MODELS = dict(
    resnet=(resnet_shapes, lambda row, p, x: resnet(p, x)),
    vit=(vit_shapes, vit),
    bert=(bert_shapes, bert),
    gpt2=(gpt2_shapes, gpt2),
    gpt_neo=(gpt_neo_shapes, gpt_neo),
    llama=(llama_shapes, llama),
)
