"""Writes full-size checkpoints for loading tests: names, shapes and dtypes as published, with random or empty contents.

    python tools/big_gpt_neo.py DIR [--dtype f32|f16] [--shard-gb SIZE] [--no-buffers]
    python tools/big_gpt_neo.py DIR --llama-8b

The first command writes EleutherAI/gpt-neo-1.3B with random weights (5.3 GB in f32), in blocks of 64 MB. The same
seed gives the same weights for any sharding; f16 weights are the rounded f32 weights. The second command writes
LLaMA-3.1-8B in four shards with exactly the published sizes (16 GB). Only the headers are written: the data are holes
in sparse files, which read as zeros and take no disk space.
"""

import argparse
import json
import math
import struct
from pathlib import Path

import numpy as np

PIECE = 1 << 24  # values per write
BYTES = dict(F32=4, F16=2, BF16=2, U8=1)

GPT_NEO = {
    "activation_function": "gelu_new",
    "architectures": ["GPTNeoForCausalLM"],
    "attention_dropout": 0,
    "attention_layers": ["global", "local"] * 12,
    "attention_types": [[["global", "local"], 12]],
    "bos_token_id": 50256,
    "embed_dropout": 0,
    "eos_token_id": 50256,
    "gradient_checkpointing": False,
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": None,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 2048,
    "model_type": "gpt_neo",
    "num_heads": 16,
    "num_layers": 24,
    "resid_dropout": 0,
    "tokenizer_class": "GPT2Tokenizer",
    "use_cache": True,
    "vocab_size": 50257,
    "window_size": 256,
}

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
LLAMA_8B_SHARDS = [4976698672, 4999802720, 4915916176, 1168138808]  # sizes of the published files in bytes

Tensor = tuple[str, list[int]]  # dtype and shape


def gpt_neo_tensors(dtype: str, buffers: bool) -> dict[str, Tensor]:
    c, inner = 2048, 4 * 2048
    tensors = {"wte.weight": (dtype, [50257, c]), "wpe.weight": (dtype, [2048, c])}
    for i in range(24):
        block = {"ln_1.weight": [c], "ln_1.bias": [c]}
        block |= {f"attn.attention.{x}_proj.weight": [c, c] for x in ["k", "v", "q", "out"]}
        block |= {"attn.attention.out_proj.bias": [c], "ln_2.weight": [c], "ln_2.bias": [c]}
        block |= {"mlp.c_fc.weight": [inner, c], "mlp.c_fc.bias": [inner]}
        block |= {"mlp.c_proj.weight": [c, inner], "mlp.c_proj.bias": [c]}
        if buffers and i % 2 == 0:  # the mask buffer that older transformers saved for global layers
            tensors[f"h.{i}.attn.attention.bias"] = ("U8", [1, 1, 2048, 2048])
            tensors[f"h.{i}.attn.attention.masked_bias"] = ("F32", [])
        tensors |= {f"h.{i}.{name}": (dtype, shape) for name, shape in block.items()}
    tensors |= {"ln_f.weight": (dtype, [c]), "ln_f.bias": (dtype, [c])}
    return {f"transformer.{name}": tensor for name, tensor in tensors.items()}


def llama_8b_tensors() -> dict[str, Tensor]:
    c, kv, inner, vocabulary = 4096, 1024, 14336, 128256
    shapes = {"model.embed_tokens.weight": [vocabulary, c]}
    for i in range(32):
        block = {"self_attn.q_proj": [c, c], "self_attn.k_proj": [kv, c], "self_attn.v_proj": [kv, c]}
        block |= {"self_attn.o_proj": [c, c], "mlp.gate_proj": [inner, c], "mlp.up_proj": [inner, c]}
        block |= {"mlp.down_proj": [c, inner], "input_layernorm": [c], "post_attention_layernorm": [c]}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in block.items()}
    shapes |= {"model.norm.weight": [c], "lm_head.weight": [vocabulary, c]}
    return {name: ("BF16", shape) for name, shape in shapes.items()}


def size(tensor: Tensor) -> int:
    return BYTES[tensor[0]] * math.prod(tensor[1])


def shards(tensors: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """Distributes tensors as save_pretrained does: in order, with a new shard where the limit would be exceeded."""
    filled = [{}]
    for name, tensor in tensors.items():
        if filled[-1] and sum(map(size, filled[-1].values())) + size(tensor) > limit:
            filled.append({})
        filled[-1][name] = tensor
    return filled


def header(tensors: dict[str, Tensor]) -> bytes:
    fields, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        end = offset + size((dtype, shape))
        fields[name] = dict(dtype=dtype, shape=shape, data_offsets=[offset, end])
        offset = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def numbers(name: str, tensor: Tensor, seed: int):
    """Yields the bytes of the tensor in blocks."""
    dtype, shape = tensor
    if dtype == "U8":
        yield np.tri(*shape[-2:], dtype=np.uint8).tobytes()
    elif name.endswith("masked_bias"):
        yield np.float32(-1e9).tobytes()
    else:
        generator = np.random.default_rng([seed, *name.encode()])
        middle, spread = (1.0, 0.1) if ".ln_" in name and name.endswith("weight") else (0.0, 0.02)
        left = math.prod(shape)
        while left:
            piece = generator.standard_normal(min(left, PIECE), dtype=np.float32)
            piece *= np.float32(spread)
            piece += np.float32(middle)
            left -= len(piece)
            yield (piece.astype(np.float16) if dtype == "F16" else piece).tobytes()


def write(folder: Path, config: dict, files: list[dict[str, Tensor]], seed: int | None) -> None:
    """Writes config.json and the weights files, with an index if there are several; without a seed the data are holes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weight_map = {}
    for i, tensors in enumerate(files, 1):
        file = "model.safetensors" if len(files) == 1 else f"model-{i:05}-of-{len(files):05}.safetensors"
        weight_map |= dict.fromkeys(tensors, file)
        tensors = dict(sorted(tensors.items(), key=lambda item: (-BYTES[item[1][0]], item[0])))
        with open(folder / file, "wb") as out:
            out.write(header(tensors))
            if seed is None:
                out.truncate(out.tell() + sum(map(size, tensors.values())))
            else:
                for name, tensor in tensors.items():
                    out.writelines(numbers(name, tensor, seed))
        print(f"{folder / file}: {len(tensors)} tensors, {(folder / file).stat().st_size:,} bytes", flush=True)
    if len(files) > 1:
        total = sum(size(tensor) for tensors in files for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--llama-8b", action="store_true", help="LLaMA-3.1-8B with holes for data")
    parser.add_argument("--dtype", choices=["f32", "f16"], default="f32", help="of GPT-Neo (default f32)")
    parser.add_argument("--shard-gb", type=float, default=1000, help="the most a file of GPT-Neo holds, in 1e9 bytes")
    parser.add_argument("--no-buffers", action="store_true", help="without the masks that published files hold")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    if args.llama_8b:
        files = shards(llama_8b_tensors(), 5 * 10**9)
        write(args.dir, LLAMA_8B, files, seed=None)
        written = [file.stat().st_size for file in sorted(args.dir.glob("model-*.safetensors"))]
        if written != LLAMA_8B_SHARDS:
            print(f"the published files have {LLAMA_8B_SHARDS} bytes")
        return
    tensors = gpt_neo_tensors(args.dtype.upper(), not args.no_buffers)
    files = shards(tensors, int(args.shard_gb * 1e9))
    config = GPT_NEO if args.dtype == "f32" else GPT_NEO | dict(torch_dtype="float16")
    write(args.dir, config, files, args.seed)


if __name__ == "__main__":
    main()
