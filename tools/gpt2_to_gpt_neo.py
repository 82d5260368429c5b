"""Converts a GPT-2 to an equivalent GPT-Neo, so that one small trained model serves both examples.

    python tools/gpt2_to_gpt_neo.py models/assets/gpt2-austen models/assets/gpt-neo-austen

GPT-Neo does not scale scores, has no biases for queries, keys and values, and stores weights as `[out, in]`. The
conversion therefore folds the scale into the query weights. The key bias adds a constant to all scores of a query,
which softmax cancels. The value bias passes through the attention weights, which sum to 1, into the output bias. The
query bias is moved into the bias of the layer norm; this also shifts keys and values, which is compensated in the
same ways. Blocks alternate between global attention and a window of 256, as in the published models; no text here is
longer.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def convert(weights: dict[str, np.ndarray], layers: int, heads: int) -> dict[str, np.ndarray]:
    old = {name.removeprefix("transformer."): value.astype(np.float64) for name, value in weights.items()}
    new = {f"transformer.{name}": old[name] for name in ["wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"]}
    for i in range(layers):
        of = lambda name: old[f"h.{i}.{name}"]
        block = {}
        q, k, v = np.split(of("attn.c_attn.weight"), 3, axis=1)  # [in, out]
        q_bias, _, v_bias = np.split(of("attn.c_attn.bias"), 3)
        shift, *_ = np.linalg.lstsq(q.T, q_bias, rcond=None)
        assert np.abs(q.T @ shift - q_bias).max() < 1e-9
        scale = (q.shape[1] // heads) ** -0.5
        out, out_bias = of("attn.c_proj.weight"), of("attn.c_proj.bias")
        block["ln_1.weight"], block["ln_1.bias"] = of("ln_1.weight"), of("ln_1.bias") + shift
        block["attn.attention.q_proj.weight"] = scale * q.T
        block["attn.attention.k_proj.weight"] = k.T
        block["attn.attention.v_proj.weight"] = v.T
        block["attn.attention.out_proj.weight"] = out.T
        block["attn.attention.out_proj.bias"] = out_bias + (v_bias - shift @ v) @ out
        for name in ["ln_2.weight", "ln_2.bias", "mlp.c_fc.bias", "mlp.c_proj.bias"]:
            block[name] = of(name)
        for name in ["mlp.c_fc.weight", "mlp.c_proj.weight"]:
            block[name] = of(name).T
        new |= {f"transformer.h.{i}.{name}": value for name, value in block.items()}
    return {name: np.ascontiguousarray(value, dtype=np.float16) for name, value in new.items()}


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    config = json.loads((source / "config.json").read_text())
    target.mkdir(parents=True, exist_ok=True)
    weights = convert(load_file(source / "model.safetensors"), config["n_layer"], config["n_head"])
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    layers = config["n_layer"]
    written = {
        "architectures": ["GPTNeoForCausalLM"],
        "model_type": "gpt_neo",
        "vocab_size": config["vocab_size"],
        "max_position_embeddings": config["n_positions"],
        "hidden_size": config["n_embd"],
        "num_layers": layers,
        "num_heads": config["n_head"],
        "intermediate_size": config["n_inner"],
        "attention_types": [[["global", "local"], layers // 2]],
        "window_size": 256,
        "activation_function": config["activation_function"],
        "layer_norm_epsilon": config["layer_norm_epsilon"],
        "embed_dropout": 0.0,
        "attention_dropout": 0.0,
        "resid_dropout": 0.0,
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": config["eos_token_id"],
        "tie_word_embeddings": True,
    }
    (target / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(source / name, target / name)


if __name__ == "__main__":
    main()
