"""Writes models with random bf16 weights, in transformers' format, and a file of random tokens. Standard library only.

Weights have a random sign and a magnitude from 2^-7 to 2^-5, a standard deviation of about 0.02; norm weights are
from 1 to 1.12.
"""

import json
import os
import random
import struct
import sys
from array import array
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Size of a generated block, and of a weights file, in bytes.
PIECE = 16 << 20
FILE = 2 << 30
# Maps a random byte to the upper byte of a weight: its sign, and with the first bit of the lower byte an exponent
# of -7 or -6.
UPPER = bytes(0xBC if byte & 1 else 0x3C for byte in range(256))
# Lower byte of a norm weight.
NEAR_ONE = bytes(0x80 | byte & 0x0F for byte in range(256))


def gpt2(layers: int, width: int, heads: int, vocab: int, positions: int) -> tuple[dict, dict[str, list[int]]]:
    config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=vocab, n_positions=positions)
    config |= dict(n_embd=width, n_layer=layers, n_head=heads, activation_function="gelu_new")
    config |= dict(bos_token_id=None, eos_token_id=None, dtype="bfloat16")
    shapes = {"wte.weight": [vocab, width], "wpe.weight": [positions, width]}
    for i in range(layers):
        for name, inputs, outputs in [
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ]:
            shapes |= {f"h.{i}.{name}.weight": [inputs, outputs], f"h.{i}.{name}.bias": [outputs]}
        shapes |= {f"h.{i}.ln_{n}.{part}": [width] for n in [1, 2] for part in ["weight", "bias"]}
    shapes |= {"ln_f.weight": [width], "ln_f.bias": [width]}
    return config, {f"transformer.{name}": shape for name, shape in shapes.items()}


def llama(
    layers: int, width: int, hidden: int, heads: int, kv_heads: int, vocab: int, tied: bool, theta: float = 10000.0
) -> tuple[dict, dict[str, list[int]]]:
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=vocab, hidden_size=width)
    config |= dict(intermediate_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, rope_theta=theta)
    config |= dict(num_key_value_heads=kv_heads, max_position_embeddings=2048, rms_norm_eps=1e-5, hidden_act="silu")
    config |= dict(tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None, dtype="bfloat16")
    keys = width // heads * kv_heads
    shapes = {"model.embed_tokens.weight": [vocab, width], "model.norm.weight": [width]}
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name, inputs, outputs in [
            ("self_attn.q_proj", width, width),
            ("self_attn.k_proj", width, keys),
            ("self_attn.v_proj", width, keys),
            ("self_attn.o_proj", width, width),
            ("mlp.gate_proj", width, hidden),
            ("mlp.up_proj", width, hidden),
            ("mlp.down_proj", hidden, width),
        ]:
            shapes[f"{layer}{name}.weight"] = [outputs, inputs]
        shapes |= {f"{layer}{name}.weight": [width] for name in ["input_layernorm", "post_attention_layernorm"]}
    if not tied:
        shapes["lm_head.weight"] = [vocab, width]
    return config, shapes


# Published sizes: GPT-2 124M, SmolLM2-135M, LLaMA-3.2-1B, LLaMA-3.1-8B. The tiny models fit the emulated device,
# and no array of the narrow one takes 128 MiB.
MODELS = {
    "gpt2_124m": lambda: gpt2(12, 768, 12, 50257, 1024),
    "llama_135m": lambda: llama(30, 576, 1536, 9, 3, 49152, True),
    "llama_1b": lambda: llama(16, 2048, 8192, 32, 8, 128256, True, 500000.0),
    "llama_8b": lambda: llama(32, 4096, 14336, 32, 8, 128256, False, 500000.0),
    "gpt2_narrow": lambda: gpt2(12, 384, 6, 50257, 1024),
    "gpt2_tiny": lambda: gpt2(2, 32, 2, 97, 64),
    "llama_tiny": lambda: llama(2, 32, 48, 4, 2, 97, False),
}


def count(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def is_norm(name: str) -> bool:
    return name.endswith(".weight") and ("norm" in name or ".ln_" in name)


def values(name: str, number: int, generator: random.Random):
    """Yields the bytes of a tensor's values, in blocks."""
    for begin in range(0, number, PIECE // 2):
        size = min(PIECE // 2, number - begin)
        numbers, random_bytes = bytearray(2 * size), generator.randbytes(2 * size)
        if is_norm(name):
            numbers[0::2], numbers[1::2] = random_bytes[:size].translate(NEAR_ONE), b"\x3f" * size
        else:
            numbers[0::2], numbers[1::2] = random_bytes[:size], random_bytes[size:].translate(UPPER)
        yield numbers


def write_file(path: Path, shapes: dict[str, list[int]]) -> None:
    """Writes a safetensors file; the values depend only on its name."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * count(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(path.name)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            for piece in values(name, count(shape), generator):
                file.write(piece)


def write_model(name: str, directory: Path) -> int:
    """Writes a model, unless it exists, and returns its number of parameters."""
    config, shapes = MODELS[name]()
    parameters = sum(count(shape) for shape in shapes.values())
    if (directory / "complete").exists():
        return parameters
    directory.mkdir(parents=True, exist_ok=True)
    files: list[dict[str, list[int]]] = [{}]
    size = 0
    for tensor, shape in shapes.items():
        size += 2 * count(shape)
        if size > FILE and files[-1]:
            files.append({})
            size = 2 * count(shape)
        files[-1][tensor] = shape
    paths = [directory / f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))]
    if len(files) == 1:
        paths = [directory / "model.safetensors"]
    else:
        places = {tensor: path.name for path, file in zip(paths, files) for tensor in file}
        index = {"metadata": {"total_size": 2 * parameters}, "weight_map": places}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    if len(files) == 1:
        write_file(paths[0], files[0])
    else:
        with ProcessPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
            list(pool.map(write_file, paths, files))
    (directory / "complete").touch()
    return parameters


def write_tokens(path: Path, number: int, vocab: int) -> None:
    """Writes a grove token file of random tokens."""
    generator = random.Random(0)
    tokens = array("H", (int(generator.random() * vocab) for _ in range(number)))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(b"grovetok" + struct.pack("<II", 1, 2) + tokens.tobytes() + struct.pack("<Q", number))


if __name__ == "__main__":
    print(write_model(sys.argv[1], Path(sys.argv[2])))
