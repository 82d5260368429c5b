"""Formats in which people save weights."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from draws import Draws

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PREFIXES = ["_orig_mod.", "module.", "model.", "_orig_mod.module."]


# Tensors that files have besides the weights, by family. They have no effect.
SPARE = {
    "gpt2": ["masked_bias", "mask"],
    "gpt_neo": ["masked_bias", "mask"],
    "llama": ["mtp", "inv_freq"],
    "mistral": ["inv_freq"],
    "qwen2": ["mtp", "inv_freq"],
    "qwen3": ["mtp", "inv_freq"],
    "bert": ["positions"],
    "roberta": ["positions"],
}
# Prefixes of the names of an encoder without a head.
BASES = {"gpt2": "transformer.", "gpt_neo": "transformer."}


def draw(draws: Draws, family: str) -> dict:
    """Draws a format; each key makes the files less usual."""
    drawn = {}
    if draws.chance(0.4):
        drawn["type"] = draws.choice(["f16", "bf16", "f64"])
    if draws.chance(0.3):
        drawn["shards"] = draws.choice([2, 3])
    if draws.chance(0.25):
        drawn["pickle"] = draws.choice(["zip", "zip", "old"])
    if draws.chance(0.15):
        drawn["prefix"] = draws.choice(PREFIXES)
    if draws.chance(0.2):
        drawn["spare"] = draws.choice(["scalar", *SPARE.get(family, [])])
    if family in BASES and draws.chance(0.15):
        drawn["bare"] = True
    if family == "bert" and draws.chance(0.15):
        drawn["old_names"] = True
    if "pickle" in drawn and draws.chance(0.3):
        drawn["wrapped"] = draws.choice(["state_dict", "model", "model_state_dict"])
    if draws.chance(0.1):
        drawn["metadata"] = draws.choice([{"format": "pt"}, {}])
    return drawn


def rounded(state: dict, drawn: dict) -> dict:
    """Returns the weights in the dtype of the file."""
    kind = torch.float64 if drawn.get("type") == "f64" else TYPES[drawn.get("type", "f32")]
    return {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def spares(kind: str, family: str) -> dict:
    """Returns superfluous tensors of this kind."""
    inner = "transformer.h.0.attn." + ("attention." if family == "gpt_neo" else "")
    if kind == "masked_bias":
        return {inner + "masked_bias": torch.tensor(-1e4)}
    if kind == "mask":
        return {inner + "bias": torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()}
    if kind == "inv_freq":
        return {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    if kind == "positions":
        return {f"{family}.embeddings.position_ids": torch.arange(8)[None]}
    return {"mtp.0.norm.weight": torch.ones(4)} if kind == "mtp" else {}


def write(state: dict, drawn: dict, folder: Path, family: str = "") -> None:
    """Writes the weights of a model into its folder."""
    spare = drawn.get("spare")
    state = rounded(state, drawn) | spares(spare, family)
    if "bare" in drawn:
        state = {name.removeprefix(BASES[family]): tensor for name, tensor in state.items()}
    if "old_names" in drawn:
        olden = lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )
        state = {olden(name): tensor for name, tensor in state.items()}
    state = {drawn.get("prefix", "") + name: tensor.contiguous().clone() for name, tensor in state.items()}
    shards = drawn.get("shards", 1)
    parts = [{} for _ in range(shards)]
    for i, (name, tensor) in enumerate(state.items()):
        parts[i * shards // len(state)][name] = tensor
    pickle = "pickle" in drawn
    stem, ending = ("pytorch_model", "bin") if pickle else ("model", "safetensors")
    names = (
        [f"{stem}.{ending}"] if shards == 1 else [f"{stem}-{i + 1:05}-of-{shards:05}.{ending}" for i in range(shards)]
    )
    for name, part in zip(names, parts):
        if not pickle:
            save_file(part, folder / name, drawn.get("metadata", {"format": "pt"}))
            continue
        if spare == "scalar":
            part = part | {"step": 12}
        if "wrapped" in drawn:
            part = {"epoch": 3, drawn["wrapped"]: part}
        torch.save(part, folder / name, _use_new_zipfile_serialization=drawn["pickle"] != "old")
    if shards > 1:
        places = {tensor: name for name, part in zip(names, parts) for tensor in part}
        total = sum(tensor.nbytes for tensor in state.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / f"{names[0].split('-')[0]}.{ending}.index.json").write_text(json.dumps(index))
