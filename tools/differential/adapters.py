"""LoRA adapters of peft: their configuration, their files, and the adapted reference models."""

import copy
import json
import shutil
import warnings
from pathlib import Path

import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

import saving
from draws import Draws

# Fraction of the cases that have an adapter.
PART = 0.2
ROOT = "base_model.model."
LLAMA = ("model.layers.", [*(f"self_attn.{x}_proj" for x in "qkvo"), *(f"mlp.{x}_proj" for x in ("gate", "up", "down"))])
BERT = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense"]  # fmt: skip
# Prefix of the layers' names, and the linear modules of a layer.
LAYERS = {
    "gpt2": ("transformer.h.", ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]),
    "gpt_neo": ("transformer.h.", [*(f"attn.attention.{x}_proj" for x in ("q", "k", "v", "out")), "mlp.c_fc", "mlp.c_proj"]),  # fmt: skip
    **dict.fromkeys(["llama", "mistral", "qwen2", "qwen3"], LLAMA),
    "bert": ("bert.encoder.layer.", BERT),
    "roberta": ("roberta.encoder.layer.", BERT),
    "distilbert": ("distilbert.transformer.layer.", [*(f"attention.{x}_lin" for x in ("q", "k", "v", "out")), "ffn.lin1", "ffn.lin2"]),  # fmt: skip
}
EMBEDDINGS = {"gpt2": ["wte", "wpe"], "gpt_neo": ["wte", "wpe"], **dict.fromkeys(["llama", "mistral", "qwen2", "qwen3"], ["embed_tokens"])}  # fmt: skip
NORMS = {"gpt2": ["ln_f", "ln_1"], "gpt_neo": ["ln_f", "ln_2"], "distilbert": ["sa_layer_norm"], "bert": ["LayerNorm"], "roberta": ["LayerNorm"]}  # fmt: skip
# Modules of the heads, by family and task; `None` is any family.
HEADS = {
    ("bert", "fill-mask"): ["transform", "transform.dense", "predictions.decoder"],
    ("roberta", "fill-mask"): ["lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"],
    ("distilbert", "fill-mask"): ["vocab_transform", "vocab_projector", "vocab_layer_norm"],
    ("bert", "classify"): ["classifier", "pooler.dense"],
    ("roberta", "classify"): ["classifier", "classifier.out_proj", "classifier.dense"],
    ("distilbert", "classify"): ["classifier", "pre_classifier"],
    (None, "tokens"): ["classifier"],
    (None, "answer"): ["qa_outputs"],
    (None, "labels"): ["score"],
    (None, "text"): ["lm_head"],
}
TYPES = {"classify": "SEQ_CLS", "labels": "SEQ_CLS", "tokens": "TOKEN_CLS", "answer": "QUESTION_ANS", "text": "CAUSAL_LM"}  # fmt: skip
# Keys of peft 0.2 and older, which later versions ignore.
OLD_KEYS = {"enable_lora": None, "merge_weights": False}


def draw(draws: Draws, base: str, layers: int, task: str) -> dict:
    """Draws an adapter for a part of the cases: the keys of `LoraConfig`, the form of the files, and the way to name it.
    `task` is a task of an encoder, `text` or `labels`."""
    if not draws.chance(PART):
        return {}
    config = configuration(draws, base, layers, task)
    drawn = {"weights": draws.randrange(1 << 30), "config": config, "saving": files(draws)}
    if draws.chance(0.3):
        drawn["as_model"] = True
    return {"adapter": drawn}


def configuration(draws: Draws, base: str, layers: int, task: str) -> dict:
    prefix, modules = LAYERS[base]
    inner = prefix.split(".")[-2]
    heads = HEADS.get((base, task)) or HEADS.get((None, task), [])
    embeddings = EMBEDDINGS.get(base, ["word_embeddings", "position_embeddings"])
    norms = NORMS.get(base, ["norm", "input_layernorm"])
    short = lambda: draws.choice(modules).split(".")[-1]
    layer = lambda: draws.randrange(layers)

    def pattern() -> str:
        """Returns a key of rank_pattern or alpha_pattern."""
        name = draws.choice(modules)
        whole = f"{prefix}{layer()}.{name}"
        usual = draws.choice([name.split(".")[-1], name, f"{inner}.{layer()}.{name}", whole, "^" + whole, "^" + whole.replace(".", r"\.")])  # fmt: skip
        return draws.mostly(usual, [rf"{inner}\.\d+\..*{short()}", f".*{short()}", f"{short()}|{short()}"], 0.08)

    def one() -> str:
        name = draws.choice(modules)
        return draws.mostly(name.split(".")[-1], [name, f"{prefix}{layer()}.{name}", f"{inner}.{layer()}.{name}"], 0.3)

    several = lambda: list(dict.fromkeys(one() for _ in range(draws.choice([1, 2, 3, 4]))))
    regex = lambda: draws.choice([rf".*{inner}\.{layer()}\..*", rf".*({short()}|{short()})", rf".*\.\d+\..*{short()}"])
    target = draws.choice(["list", "list", "list", "regex", "all-linear", "default"])
    config = {} if target == "default" else {"target_modules": {"list": several, "regex": regex, "all-linear": lambda: target}[target]()}  # fmt: skip
    patterns = lambda *values: {pattern(): draws.choice(values) for _ in range(draws.choice([1, 1, 2]))}
    config |= draws.some(
        {
            "r": lambda: draws.choice([1, 2, 3, 4, 8, 12]),
            "lora_alpha": lambda: draws.choice([1, 2, 4, 8, 16, 3.5]),
        },
        0.8,
    )
    config |= draws.some(
        {
            "use_rslora": lambda: draws.choice([True, True, False]),
            "rank_pattern": lambda: patterns(1, 2, 5),
            "alpha_pattern": lambda: patterns(1, 6, 12.5),
            "modules_to_save": lambda: draws.sample(heads, 1) if draws.chance(0.7) else draws.sample(embeddings + norms + heads, 2),  # fmt: skip
            "task_type": lambda: TYPES.get(task),
            "fan_in_fan_out": lambda: draws.mostly(base == "gpt2", [base != "gpt2"]),
            "lora_dropout": draws.rate,
            "exclude_modules": lambda: draws.choice([several, regex])(),
            "init_lora_weights": lambda: draws.mostly(
                draws.choice([True, False, "gaussian", "orthogonal"]), ["pissa", "pissa_niter_2", "olora", "mica"], 0.15
            ),
            "inference_mode": lambda: draws.choice([True, False]),
        },
        0.25,
    )
    if target in ("list", "default") and draws.chance(0.25):
        config["layers_to_transform"] = draws.choice([layer(), [layer()], list(range(layers))])
        config |= draws.some({"layers_pattern": lambda: draws.choice([inner, [inner], [inner, "blocks"]])}, 0.5)
    if "target_modules" in config and target == "list" and draws.chance(0.08):
        config["target_modules"].append(draws.choice(embeddings + heads))
    return config | draws.some(
        {
            "revision": lambda: draws.choice([None, "main"]),
            "megatron_core": lambda: "megatron.core",
            "ensure_weight_tying": lambda: draws.choice([False, True]),
            "qalora_group_size": lambda: 16,
            "loftq_config": dict,
            "bias": lambda: "none",
            "eva_config": lambda: {"rho": 1.5},
            "corda_config": lambda: {"corda_method": "ipm"},
            "lora_ga_config": lambda: {"scale": "unit"},
        },
        0.04,
    ) | draws.rare(
        {
            "bias": lambda: draws.choice(["all", "lora_only"]), "use_dora": lambda: draws.choice([True, False]), "lora_bias": lambda: draws.choice([True, False]),
            "trainable_token_indices": lambda: draws.choice([[1, 2, 5], {embeddings[0]: [1, 3]}]),
            "target_parameters": lambda: draws.choice([[f"{short()}.weight"], []]), "layer_replication": lambda: [[0, layers], [0, 1]],
            "alora_invocation_tokens": lambda: [1, 2], "kasa_config": lambda: {"beta": 1e-3}, "monteclora_config": lambda: {"num_samples": 2},
            "velora_config": dict, "arrow_config": lambda: {"top_k": 1}, "use_qalora": lambda: draws.choice([False, True]),
            "use_bdlora": lambda: {"target_modules_bd_a": [short()], "nblocks": 2, "match_strict": False},
        },
        0.2,
    )  # fmt: skip


def files(draws: Draws) -> dict:
    """Draws the form of the files; each key makes them less usual."""
    return draws.some(
        {
            "type": lambda: draws.choice(["bf16", "f16"]),
            "pickle": lambda: draws.choice(["zip", "old"]),
            "inner": lambda: True,
            "base": lambda: draws.choice(["relative", "absent", "other"]),
            "tokenizer": lambda: True,
        },
        0.2,
    ) | draws.some(
        {
            "old_names": lambda: True,
            "old_keys": lambda: True,
            "few_keys": lambda: True,
            "embeddings": lambda: True,
            "metadata": lambda: {},
        },
        0.1,
    ) | draws.rare({"prefix": lambda: draws.choice(["module.", "_orig_mod."])}, 0.05)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------- building


def wrapped(case: dict, model):
    """Returns the part of a model that the adapter was made for."""
    return model.base_model if case["adapter"].get("saving", {}).get("inner") else model


def randomise(model, seed: int) -> None:
    """Randomises the trainable parameters: an update is about as large as its weight."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad and "lora_" not in name:
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if "lora_A" in name or "lora_embedding_A" in name:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
            elif "lora_B" in name or "lora_embedding_B" in name:
                parameter.copy_(0.4 * noise)
            else:
                parameter.mul_(1 + 0.3 * noise).add_(0.1 * noise)


def build(case: dict, folder: Path, kind, model: Path) -> None:
    """Writes `adapter`, the files for grove, and `reference_adapter`, the same adapter as peft saves it. `model` is the base
    model for grove."""
    if "adapter" not in case:
        return
    drawn, reference, place = case["adapter"], folder / "reference_adapter", folder / "adapter"
    form = drawn.get("saving", {})
    base = kind.from_pretrained(folder / "reference", dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(drawn.get("weights", 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(wrapped(case, base), peft.LoraConfig(**copy.deepcopy(drawn.get("config", {}))))
        randomise(adapted, drawn.get("weights", 0))
        adapted.save_pretrained(reference, save_embedding_layers=form.get("embeddings", "auto"))
    state = saving.rounded(load_file(reference / "adapter_model.safetensors"), form)
    save_file(state, reference / "adapter_model.safetensors", {"format": "pt"})
    config = json.loads((reference / "adapter_config.json").read_text())
    for key in ("target_modules", "exclude_modules"):  # sets
        if isinstance(config[key], list):
            config[key].sort()
    (reference / "adapter_config.json").write_text(json.dumps(config, indent=2))
    place.mkdir()
    config["base_model_name_or_path"] = base_name(drawn, model)
    if "few_keys" in form:
        used = {"peft_type", "base_model_name_or_path", *drawn.get("config", {}), "target_modules", "r", "lora_alpha"}
        config = {key: value for key, value in config.items() if key in used}
    if "old_keys" in form:
        config |= OLD_KEYS
    (place / "adapter_config.json").write_text(json.dumps(config, indent=2))
    if "tokenizer" in form and "tokenizer" in case:
        copy_tokenizer(case["tokenizer"], folder / "reference", place)
    write(state, form, place, config)


def copy_tokenizer(drawn: dict, reference: Path, place: Path) -> None:
    """Copies the tokenizer's files. They name its class, as `save_pretrained` does: an adapter has no config.json."""
    for file in reference.iterdir():
        if file.name not in ("config.json", "generation_config.json") and not file.name.startswith(("model.", "model-")):
            shutil.copy(file, place)
    file = place / "tokenizer_config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    if "tokenizer_class" not in config:
        model = drawn.get("form") == "model"
        kind = "LlamaTokenizer" if model else type(AutoTokenizer.from_pretrained(reference)).__name__
        file.write_text(json.dumps(config | {"tokenizer_class": kind}))


def base_name(drawn: dict, model: Path) -> str | None:
    """Returns `base_model_name_or_path`. Only an adapter that is added by its option can name another model."""
    kind = drawn.get("saving", {}).get("base")
    if kind == "relative":
        return f"../{model.name}" if model.name == "model" else f"../model/{model.name}"
    if kind in ("absent", "other") and not drawn.get("as_model"):
        return {"absent": None, "other": "some/model"}[kind]
    return str(model)


def write(state: dict, form: dict, place: Path, config: dict) -> None:
    """Writes the tensors, in the names of old versions or of a wrapped model if so drawn."""
    if "old_names" in form:
        saved = tuple(f".{name}." for name in config.get("modules_to_save") or [])
        state = {old_name(name, saved): tensor for name, tensor in state.items()}
    if "prefix" in form:
        state = {ROOT + form["prefix"] + name.removeprefix(ROOT): tensor for name, tensor in state.items()}
    state = {name: tensor.contiguous().clone() for name, tensor in state.items()}
    if "pickle" in form:
        torch.save(state, place / "adapter_model.bin", _use_new_zipfile_serialization=form["pickle"] != "old")
    else:
        save_file(state, place / "adapter_model.safetensors", form.get("metadata", {"format": "pt"}))


def old_name(name: str, saved: tuple[str, ...]) -> str:
    """Returns the name of a tensor of `modules_to_save` in files of old versions."""
    for module in saved:
        if module in name and ".lora_" not in name:
            before, _, after = name.rpartition(module)
            return f"{before}{module}modules_to_save.{after}"
    return name


# ------------------------------------------------------------------------------------------------------------------- reading


def adapted(case: dict, folder: Path, model):
    """Returns transformers' model, with the adapter if the case has one."""
    if "adapter" not in case:
        return model
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        peft.PeftModel.from_pretrained(wrapped(case, model), folder / "reference_adapter")
    for warning in said:
        if "missing adapter keys" in str(warning.message):
            raise ValueError(str(warning.message))
    return model.eval()


def tokenizer_folder(case: dict, folder: Path) -> Path:
    """Returns the folder with the files of the tokenizer for transformers."""
    of_adapter = case.get("adapter", {}).get("saving", {}).get("tokenizer") and "tokenizer" in case
    return folder / ("adapter" if of_adapter else "reference")


def arguments(case: dict, folder: Path, model: Path) -> tuple[Path, list[str], tuple[Path, ...]]:
    """Returns the model and the further arguments for grove, and the other folders with keys that a message may name."""
    if "adapter" not in case:
        return model, [], ()
    place = folder / "adapter"
    if case["adapter"].get("as_model"):
        return place, [], (model,)
    return model, ["--adapter", str(place)], (place,)
