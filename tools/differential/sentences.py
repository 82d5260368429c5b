"""Cases of sentence encoders: text embeddings by folders of sentence-transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel

import encoders
import saving
import vocabularies
from decoders import randomise
from draws import Draws
from programs import Invalid, Programs, Wrong

OLD = "sentence_transformers.models."
NEW = "sentence_transformers.sentence_transformer.modules.{}."
MODES = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
NAMES = ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
ACTIVATIONS = [
    "activation.Tanh",
    "linear.Identity",
    "activation.ReLU",
    "activation.GELU",
    "activation.SiLU",
    "activation.Sigmoid",
]
CLOSE = 2e-4


def draw(draws: Draws, family: str) -> dict:
    encoder = draws.choice(encoders.FAMILIES)
    case = encoders.without_adapter(draws, encoder)
    case |= {"family": "sentence"}
    case["sizes"] = case["sizes"] | {"encoder": encoder}
    case["config"] = encoders.configuration_keys(draws, encoder, "embed")
    texts = [vocabularies.text(draws, draws.choice([1, 4, 8])).strip() or "a" for _ in range(draws.choice([1, 2, 4]))]
    case["ask"] = {"texts": texts} | draws.some({"batch_size": lambda: draws.choice([1, 2])}, 0.2)
    case["ask"] |= draws.some({"max_length": lambda: draws.choice([6, 9])}, 0.1)
    case["pooling"] = pooling(draws)
    if draws.chance(0.3):
        case["normalize"] = {}
    if draws.chance(0.25):
        case["dense"] = {"out": draws.choice([5, 12])} | draws.some(
            {
                "bias": lambda: draws.choice([True, False]),
                "activation_function": lambda: "torch.nn.modules." + draws.choice(ACTIVATIONS),
            },
            0.6,
        )
    if draws.chance(0.1):
        case["layer_norm"] = {}
    if draws.chance(0.3):
        case["new"] = True
    if draws.chance(0.15):
        case["inner"] = "0_Transformer"
    if draws.chance(0.4):
        case["bert"] = draws.some(
            {"max_seq_length": lambda: draws.choice([5, 12, None]), "do_lower_case": lambda: draws.choice([True, False])}, 0.7
        ) | draws.rare({"model_args": lambda: {"add_pooling_layer": False}, "tokenizer_args": lambda: {"model_max_length": 6},
                        "transformer_task": lambda: "feature-extraction"}, 0.15)  # fmt: skip
    if draws.chance(0.4):
        case["sentence"] = draws.some(
            {
                "prompts": lambda: {"query": "the: ", "document": "", "ask": "a grove "},
                "default_prompt_name": lambda: draws.choice(["query", None, "ask"]),
                "similarity_fn_name": lambda: draws.choice(["cosine", "dot", "euclidean", None]),
                "__version__": lambda: {"sentence_transformers": "3.0.1", "transformers": "4.41.0", "pytorch": "2.0"},
                "truncate_dim": lambda: draws.choice([4, None]),
                "model_type": lambda: "SentenceTransformer",
            },
            0.5,
        )
        name = case["sentence"].get("default_prompt_name")
        if name and "prompts" not in case["sentence"]:
            del case["sentence"]["default_prompt_name"]
        if "prompts" in case["sentence"] and draws.chance(0.4):
            case["ask"]["prompt_name"] = draws.choice(["query", "ask"])
    return case


def pooling(draws: Draws) -> dict:
    if draws.chance(0.5):
        modes = draws.sample(MODES, draws.choice([1, 1, 1, 2, 3]))
        flags = {f"pooling_mode_{mode}": mode in modes for mode in MODES if mode in modes or draws.chance(0.8)}
    else:
        names = draws.sample(NAMES, draws.choice([1, 1, 2]))
        flags = {"pooling_mode": names if len(names) > 1 or draws.chance(0.2) else names[0]}
    return flags | draws.some({"include_prompt": lambda: draws.choice([True, False])}, 0.3)


def build(case: dict, folder: Path) -> None:
    reference = folder / "reference"
    inner = reference / case.get("inner", "")
    inner.mkdir(parents=True)
    own = case | {"family": case["sizes"]["encoder"]}
    size = vocabularies.write(case["tokenizer"], inner) + len(case["tokenizer"].get("added", {})) + 6
    (inner / "config.json").write_text(json.dumps(encoders.configuration(own, size)))
    write = lambda file, content: (file.parent.mkdir(exist_ok=True, parents=True), file.write_text(json.dumps(content)))
    if "bert" in case:
        write(inner / "sentence_bert_config.json", case["bert"])
    if "sentence" in case:
        write(reference / "config_sentence_transformers.json", case["sentence"])
    width = case["sizes"]["width"]
    name = "embedding_dimension" if case.get("new") else "word_embedding_dimension"
    modules = [("Transformer", None, None)]
    if "pooling" in case:
        modules.append(("Pooling", {name: width} | case["pooling"], None))
        modes = case["pooling"].get("pooling_mode")
        flags = sum(value is True for key, value in case["pooling"].items() if key.startswith("pooling_mode_"))
        width *= len(modes) if isinstance(modes, list) else max(1, flags)
    generator = torch.Generator().manual_seed(case["weights"])
    random = lambda *shape: torch.randn(*shape, generator=generator) * 0.4
    if "dense" in case:
        settings = dict(case["dense"])
        out = settings.pop("out", 7)
        settings = {"in_features": width, "out_features": out} | settings
        weights = {"linear.weight": random(out, width)}
        if settings.get("bias", True):
            weights["linear.bias"] = random(out)
        modules.append(("Dense", settings, weights))
        width = out
    if "layer_norm" in case:
        modules.append(
            ("LayerNorm", {"dimension": width}, {"norm.weight": 1 + random(width), "norm.bias": random(width)})
        )
    if "normalize" in case:
        modules.append(("Normalize", None, None))
    entries = []
    for i, (kind, settings, weights) in enumerate(modules):
        path = case.get("inner", "") if i == 0 else f"{i}_{kind}"
        where = NEW.format(kind.lower()) if case.get("new") and kind == "Pooling" else OLD
        entries.append(dict(idx=i, name=str(i), path=path, type=where + kind))
        if settings is not None:
            write(reference / path / "config.json", settings)
        if weights:
            save_file(weights, reference / path / "model.safetensors")
    if len(modules) > 1:
        write(reference / "modules.json", entries)
    shutil.copytree(reference, folder / "model")
    config = AutoConfig.from_pretrained(inner)
    model = AutoModel.from_config(config, dtype=torch.float32)
    randomise(model, case["weights"])
    state = {name: tensor for name, tensor in model.state_dict().items() if "position_ids" not in name}
    saving.write(state, {key: case["saving"][key] for key in ("type",) if key in case["saving"]}, inner)
    saving.write(state, case["saving"], folder / "model" / case.get("inner", ""), case["sizes"]["encoder"])


def check(case: dict, folder: Path, programs: Programs) -> None:
    """Raises `Wrong`, `Refused` or `Invalid`; returns if all results are equal."""
    asked = case["ask"]
    try:
        build(case, folder)
        model = SentenceTransformer(str(folder / "reference"), device="cpu", model_kwargs={"dtype": torch.float32})
        if "max_length" in asked:
            model.max_seq_length = min(asked["max_length"], model.max_seq_length or 512)
        more = {"prompt_name": asked["prompt_name"]} if "prompt_name" in asked else {}
        right = np.asarray(model.encode(asked["texts"], show_progress_bar=False, **more))
        if not np.isfinite(right).all():
            raise ValueError("vectors are not finite")
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    arguments = ["--task", "embed"]
    if "prompt_name" in asked:
        arguments += ["--prompt-name", asked["prompt_name"]]
    if "max_length" in asked:
        arguments += ["--max-length", str(asked["max_length"])]
    if "batch_size" in asked:
        arguments += ["--batch-size", str(asked["batch_size"])]
    # `--file` has one text per line, but these texts may have several lines.
    found, _ = programs.ask("bert", *arguments, "--", *asked["texts"], model=folder / "model")
    found = np.asarray(found["embeddings"])
    if found.shape != right.shape:
        raise Wrong(f"vectors have the shape {found.shape}; right is {right.shape}")
    apart = np.abs(found - right).max() / max(np.abs(right).max(), 1e-6)
    if not apart <= CLOSE:
        raise Wrong(
            f"vectors are apart by {apart:.2g}: {found[0][:4].round(4).tolist()}; right is {right[0][:4].round(4).tolist()}"
        )
