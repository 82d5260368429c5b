"""Cases of GPT-2, GPT-Neo, LLaMA, Mistral and Qwen2: losses of texts, greedy continuations, chats."""

import json
import re
import shutil
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaTokenizer

import ggml
import saving
import vocabularies
from draws import Draws
from programs import Invalid, Programs, Wrong

FAMILIES = ["gpt2", "gpt_neo", "llama", "mistral", "qwen2"]
ACTIVATIONS = ["gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate",
               "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu",
               "sqrtsoftplus", "swish", "tanh"]  # fmt: skip
# Relative differences of losses, and of logits that count as equal where two texts part.
CLOSE, NEAR_TIE = 1e-4, 2e-4
# The same for quantized weights, with which grove multiplies quantized numbers.
CLOSE_QUANTIZED, NEAR_TIE_QUANTIZED = 2e-2, 5e-2

# White space by Unicode, which Python's strip has more of.
SPACES = " \t\n\v\f\r\x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


# ------------------------------------------------------------------------------------------------------------------- drawing


def draw(draws: Draws, family: str) -> dict:
    """A case. `sizes` and `ask` are needed; any other key can be dropped."""
    heads, layers = draws.choice([1, 2, 3, 4]), draws.choice([1, 2, 2, 3])
    case = {"family": family, "weights": draws.randrange(1 << 30)}
    case["sizes"] = {"heads": heads, "width": heads * draws.choice([6, 8, 16]), "layers": layers, "positions": draws.choice([48, 64, 96, 128])}
    case["config"] = general(draws) | (gpt(draws, family) if family in ("gpt2", "gpt_neo") else llama(draws, family, heads, layers))
    if family == "gpt_neo":
        case["config"].pop("attn_implementation", None)
    case["saving"] = saving.draw(draws, family)
    if family == "llama" and draws.chance(0.12):
        case["saving"] = {"gguf": draws.choice(["F32", "F32", "F16", "BF16", "Q8_0", "Q4_0"])}
        case["config"] = for_gguf(draws, case["config"])
    if draws.chance(0.1):
        case["head"] = draws.choice(["own", "copy", "absent"])
    if family not in ("gpt2", "gpt_neo") and draws.chance(0.12):
        # Texts beyond the length of training.
        case["sizes"]["positions"] = draws.choice([12, 20, 28])
        case["sizes"]["beyond"] = True
    text = draws.chance(0.6)
    if text:
        case["tokenizer"] = vocabularies.of_decoder(draws, family)
        if "gguf" in case["saving"]:
            case["tokenizer"] = {"kind": draws.choice(["bpe", "llama3", "digits"])}
    if draws.chance(0.6):
        case["generation"] = generation(draws)
    case["ask"] = ask(draws, text, case)
    return case


def for_gguf(draws: Draws, config: dict) -> dict:
    """The keys that GGUF's metadata can say."""
    kept = {key: config[key] for key in ("num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "rope_theta") if key in config}
    kind = draws.choice(["default", "linear", "yarn", "llama3"])
    scaling = {"rope_type": kind}
    if kind != "default":
        scaling["factor"] = draws.choice([2.0, 4.0])
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = draws.choice([12, 16])
    return kept | {"rope_scaling": scaling, "eos_token_id": draws.choice([0, 2, 7])}


def general(draws: Draws) -> dict:
    """Keys of every configuration."""
    return draws.some(
        {
            "use_cache": lambda: draws.choice([True, False]),
            "bos_token_id": lambda: draws.choice([0, 1, 2, None]),
            "eos_token_id": lambda: draws.choice([0, 2, 7, None, [2, 9], [3]]),
            "pad_token_id": lambda: draws.choice([0, 1, 5, None, -1]),
            "initializer_range": lambda: 0.02,
            "tie_word_embeddings": lambda: draws.choice([True, False]),
            "architectures": lambda: ["SomeForCausalLM"],
            "transformers_version": lambda: draws.choice(["4.12.0", "4.57.1", "5.23.0"]),
            "torch_dtype": lambda: draws.choice(["float32", "float16", "bfloat16"]),
            "dtype": lambda: draws.choice(["float32", "float16", "bfloat16"]),
        },
        0.25,
    ) | draws.some(
        {
            "_name_or_path": lambda: "some/model",
            "id2label": lambda: {"0": "a", "1": "b", "2": "c"},
            "label2id": lambda: {"a": 0, "b": 1, "c": 2},
            "problem_type": lambda: "regression",
            "return_dict": lambda: True,
            "output_hidden_states": lambda: draws.choice([True, False]),
            "chunk_size_feed_forward": lambda: draws.choice([0, 8]),
            "is_encoder_decoder": lambda: False,
            "task_specific_params": lambda: {"text-generation": {"do_sample": True, "max_length": 50}},
            "finetuning_task": lambda: "write",
            "gradient_checkpointing": lambda: False,
            "attn_implementation": lambda: draws.choice(["sdpa", "eager"]),
            "some_note": lambda: draws.choice(["by hand", 3, {"deep": [1]}]),
        },
        0.05,
    ) | draws.rare(
        {
            "num_beams": lambda: 3, "do_sample": lambda: True, "temperature": lambda: 0.7, "repetition_penalty": lambda: 1.4,
            "max_length": lambda: 30, "no_repeat_ngram_size": lambda: 2, "suppress_tokens": lambda: [1, 2, 3, 4, 5, 6],
            "bad_words_ids": lambda: [[5], [6]], "min_length": lambda: 20, "forced_eos_token_id": lambda: 2, "top_k": lambda: 5,
            "add_cross_attention": lambda: draws.choice([False, True]), "is_decoder": lambda: draws.choice([False, True]),
            "tie_encoder_decoder": lambda: False, "pruned_heads": lambda: {},
        },
        0.15,
    )  # fmt: skip


def gpt(draws: Draws, family: str) -> dict:
    """Keys of GPT-2 or of GPT-Neo."""
    if family == "gpt2":
        rates, activation, epsilon = ["resid_pdrop", "embd_pdrop", "attn_pdrop"], "activation_function", "layer_norm_epsilon"
        own = {
            "n_inner": lambda: draws.choice([None, 20, 64]),
            "scale_attn_weights": lambda: draws.choice([True, False]),
            "scale_attn_by_inverse_layer_idx": lambda: draws.choice([True, False]),
            "reorder_and_upcast_attn": lambda: draws.choice([True, False]),
            "n_ctx": lambda: draws.choice([16, 1024]),
            "summary_type": lambda: "cls_index",
            "summary_use_proj": lambda: True,
            "summary_activation": lambda: None,
            "summary_proj_to_labels": lambda: True,
            "summary_first_dropout": lambda: 0.1,
        }
    else:
        rates, activation, epsilon = ["resid_dropout", "embed_dropout", "attention_dropout", "classifier_dropout"], "activation_function", "layer_norm_epsilon"  # fmt: skip
        own = {
            "intermediate_size": lambda: draws.choice([None, 20, 64]),
            "window_size": lambda: draws.choice([2, 5, 16, 256]),
            "attention_layers": lambda: None,
        }
    return draws.some(own, 0.25) | draws.some({rate: draws.rate for rate in rates}, 0.2) | draws.some(
        {activation: lambda: draws.choice(ACTIVATIONS), epsilon: lambda: draws.choice([1e-5, 1e-6, 1e-3, 1e-12])}, 0.4
    ) | draws.rare({"names": lambda: "general"}, 0.1)  # fmt: skip


def llama(draws: Draws, family: str, heads: int, layers: int) -> dict:
    """Keys of LLaMA, Mistral or Qwen2."""
    own = {
        "num_key_value_heads": lambda: draws.choice([n for n in range(1, heads + 1) if heads % n == 0] + [None]),
        "hidden_act": lambda: draws.choice(ACTIVATIONS),
        "rms_norm_eps": lambda: draws.choice([1e-5, 1e-6, 1e-3]),
        "attention_dropout": draws.rate,
        "head_dim": lambda: draws.choice([None, 4, 8, 16]),
    }
    if family == "llama":
        own |= {
            "attention_bias": lambda: draws.choice([True, False]),
            "mlp_bias": lambda: draws.choice([True, False]),
            "pretraining_tp": lambda: draws.choice([1, 2]),
        }
    elif family == "mistral":
        own |= {"sliding_window": lambda: draws.choice([None, 3, 7, 20, 4096])}
    else:
        own |= {
            "use_sliding_window": lambda: draws.choice([True, True, False]),
            "sliding_window": lambda: draws.choice([None, 3, 7, 20]),
            "max_window_layers": lambda: draws.choice([0, 1, 2, 28]),
            "layer_types": lambda: [draws.choice(["full_attention", "sliding_attention"]) for _ in range(layers)],
        }
    config = draws.some(own, 0.35)
    if "layer_types" in config and not (config.get("use_sliding_window") and config.get("sliding_window")):
        config["layer_types"] = ["full_attention"] * layers
    if family != "llama" and config.get("head_dim", 1) is None:
        del config["head_dim"]
    if family == "mistral" and config.get("num_key_value_heads", 1) is None:
        del config["num_key_value_heads"]
    theta = draws.choice([10000.0, 500.0, 1e6, 10000])
    style = draws.choice(["none", "new", "old", "old", "both"])
    if style == "new":
        config["rope_parameters"] = scaling(draws, "rope_type") | {"rope_theta": theta}
    elif style != "none":
        config["rope_theta"] = theta
        if draws.chance(0.7):
            config["rope_scaling"] = scaling(draws, draws.choice(["rope_type", "type"]))
        if style == "both" and "rope_scaling" in config:
            config["rope_scaling"] |= {"type": config["rope_scaling"].get("rope_type", config["rope_scaling"].get("type"))}
    return config


def scaling(draws: Draws, name: str) -> dict:
    """A scaling of rotary positions."""
    kind = draws.choice(["default", "linear", "dynamic", "yarn", "longrope", "llama3"])
    factor = draws.choice([2.0, 4.0, 1.5, 8])
    original = {"original_max_position_embeddings": draws.choice([12, 16, 24])}
    config = {name: kind}
    if kind == "yarn":
        config |= {"factor": factor} | draws.some(
            {
                "original_max_position_embeddings": lambda: 16,
                "attention_factor": lambda: draws.choice([1.0, 0.8, None]),
                "beta_fast": lambda: draws.choice([32, 16.0]),
                "beta_slow": lambda: draws.choice([1, 2.0]),
                "mscale": lambda: draws.choice([1.0, 0.7]),
                "mscale_all_dim": lambda: draws.choice([1.0, 0.5]),
                "truncate": lambda: draws.choice([True, False]),
            },
            0.4,
        )
    elif kind == "longrope":
        config |= original | {"short_factor": "factors", "long_factor": "factors"}
        config |= draws.some({"factor": lambda: factor, "attention_factor": lambda: draws.choice([1.2, 0.9])}, 0.4)
    elif kind == "llama3":
        config |= original | {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": draws.choice([4.0, 2])}
    elif kind in ("linear", "dynamic"):
        config |= {"factor": factor}
        config |= original if kind == "dynamic" and draws.chance(0.5) else {}
    return config | draws.rare({"partial_rotary_factor": lambda: draws.choice([1.0, 0.5])}, 0.06)


def generation(draws: Draws) -> dict:
    """A generation_config.json."""
    lists = lambda: sorted(draws.sample(range(60), draws.choice([1, 3, 8])))
    settings = {"do_sample": lambda: draws.choice([False, False, True])}
    settings |= {
        "eos_token_id": lambda: draws.choice([0, 2, 7, [2, 9, 30], [5], lists(), None]),
        "bos_token_id": lambda: draws.choice([0, 1]),
        "pad_token_id": lambda: draws.choice([0, 2]),
        "temperature": lambda: draws.choice([0.6, 1.0, 1.5]),
        "top_p": lambda: draws.choice([0.9, 1.0]),
        "top_k": lambda: draws.choice([50, 0, 5]),
        "repetition_penalty": lambda: draws.choice([1.0, 1.1, 1.3, 2.0, 0.8]),
        "max_new_tokens": lambda: draws.choice([4, 12, 20]),
        "max_length": lambda: draws.choice([20, 30, 40]),
        "transformers_version": lambda: "4.40.0",
        "_from_model_config": lambda: True,
        "use_cache": lambda: draws.choice([True, False]),
    }
    rules = {
        "suppress_tokens": lambda: draws.choice([lists(), None, []]),
        "begin_suppress_tokens": lists,
        "bad_words_ids": lambda: [draws.sample(range(60), draws.choice([1, 1, 2])) for _ in range(draws.choice([1, 4, 20]))],
        "no_repeat_ngram_size": lambda: draws.choice([0, 1, 2, 3]),
        "min_new_tokens": lambda: draws.choice([0, 3, 8]),
        "min_length": lambda: draws.choice([0, 10, 25]),
        "stop_strings": lambda: draws.choice(["e", [" ", "t"], ["the", "\n"], None]),
        "forced_eos_token_id": lambda: draws.choice([2, [2, 9], None]),
        "exponential_decay_length_penalty": lambda: draws.choice([[3, 1.5], [1, 1.05], [2, 4.0]]),
        "encoder_repetition_penalty": lambda: draws.choice([1.0, 1.5, 0.7]),
        "min_p": lambda: draws.choice([0.05, None]),
        "renormalize_logits": lambda: draws.choice([True, False]),
        "remove_invalid_values": lambda: draws.choice([True, False]),
        "num_return_sequences": lambda: 1,
        "num_beams": lambda: draws.mostly(1, [2]),
        "num_beam_groups": lambda: 1,
        "length_penalty": lambda: 1.0,
        "early_stopping": lambda: draws.choice([False, True]),
        "typical_p": lambda: draws.choice([1.0, 0.9]),
        "epsilon_cutoff": lambda: draws.choice([0.0, 0.01]),
        "eta_cutoff": lambda: 0.0,
        "diversity_penalty": lambda: 0.0,
        "guidance_scale": lambda: draws.choice([1, 1.0, None, 1.5]),
        "sequence_bias": lambda: draws.choice([None, [[[5], 3.0], [[7, 8], -2.0]]]),
        "output_scores": lambda: draws.choice([True, False]),
        "return_dict_in_generate": lambda: False,
        "cache_implementation": lambda: None,
        "prompt_lookup_num_tokens": lambda: None,
        "encoder_no_repeat_ngram_size": lambda: draws.choice([0, 0, 2]),
        "forced_bos_token_id": lambda: draws.choice([None, 4]),
        "max_time": lambda: draws.choice([None, None, 60.0]),
        "token_healing": lambda: False,
        "low_memory": lambda: None,
        "is_assistant": lambda: False,
        "some_note": lambda: "by hand",
    }
    found = draws.some(settings, 0.3) | draws.some(rules, 0.06)
    if found.get("do_sample") and draws.chance(0.6):
        found["top_k"] = 1
    return found


def ask(draws: Draws, text: bool, case: dict) -> dict:
    """The question. Exactly one of `prompt` and `ids` is there."""
    asked = {}
    length = draws.choice([1, 3, 6, 10])
    if text:
        asked["prompt"] = vocabularies.text(draws, length if case["sizes"]["positions"] < 96 else 2 * length) or "a"
    else:
        asked["ids"] = [draws.randrange(60) for _ in range(2 * length + draws.choice([1, 5, 10]))]
    if draws.chance(0.8):
        asked["max_new_tokens"] = draws.choice([1, 6, 12, 16])
    if text and case["family"] in ("llama", "mistral", "qwen2") and draws.chance(0.3):
        name = draws.mostly("chatml", list(vocabularies.TEMPLATES), 0.85)
        if "gguf" in case["saving"] or draws.chance(0.5):
            case["tokenizer"]["template"] = name
        else:
            case["tokenizer"]["template_file"] = vocabularies.TEMPLATES[name]
        asked |= {"chat": True} | draws.some({"system": lambda: "Be brief."}, 0.5)
        if draws.chance(0.3):
            asked["second"] = vocabularies.text(draws, 3).replace("\n", " ") or "b"
        asked["prompt"] = asked["prompt"].replace("\n", " ").strip() or "a"
        case["sizes"]["positions"] = 256
        return asked
    return asked | draws.rare(
        {"file": lambda: True, "samples": lambda: 2, "jit": lambda: True, "draft": lambda: draws.choice([2, 4]), "stop": lambda: draws.choice(["e", " a", "\n"]),
         "ignore_eos": lambda: True, "repetition_penalty": lambda: 1.2}, 0.2)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------- building


def configuration(case: dict, vocabulary: int) -> dict:
    """The config.json."""
    family, sizes = case["family"], case["sizes"]
    config = dict(case["config"])
    names = {
        "gpt2": ["n_embd", "n_head", "n_layer", "n_positions"],
        "gpt_neo": ["hidden_size", "num_heads", "num_layers", "max_position_embeddings"],
    }.get(family, ["hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings"])
    if config.pop("names", None):
        names = ["hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings"]
    config |= dict(zip(names, [sizes["width"], sizes["heads"], sizes["layers"], sizes["positions"]]))
    config |= {"model_type": family, "vocab_size": vocabulary}
    if family == "gpt_neo":
        kinds = [["global", "local"], ["local"], ["global"], ["local", "global", "global"]][case["weights"] % 4]
        whole, rest = divmod(sizes["layers"], len(kinds))
        config["attention_types"] = ([[kinds, whole]] if whole else []) + ([[kinds[:rest], 1]] if rest else [])
        if "attention_layers" in config:
            config["attention_layers"] = [kinds[i % len(kinds)] for i in range(sizes["layers"])]
    elif family != "gpt2":
        config.setdefault("intermediate_size", 2 * sizes["width"])
        # The defaults of Mistral and Qwen2 do not suit few heads.
        config.setdefault("num_key_value_heads", sizes["heads"])
        half = (config.get("head_dim") or sizes["width"] // sizes["heads"]) // 2
        for key in ("rope_scaling", "rope_parameters"):
            if "short_factor" in (config.get(key) or {}):
                half_used = int(half * config[key].get("partial_rotary_factor", 1.0))
                config[key] = config[key] | {name: [scale + 0.25 * i for i in range(half_used)]
                                             for name, scale in (("short_factor", 1.0), ("long_factor", 1.5)) if name in config[key]}  # fmt: skip
    return config


def randomise(model, seed: int) -> None:
    """Random parameters of sizes with which logits spread: no bias is zero, no weight of a norm is one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(noise * (0.6 if "wpe" in name or "wte" in name or "embed" in name else 1.2 / parameter.shape[-1] ** 0.5))


def build(case: dict, folder: Path) -> None:
    """Writes `model`, the files for grove, and `reference`, the same in the form that transformers reads."""
    reference, model_folder = folder / "reference", folder / "model"
    reference.mkdir(parents=True)
    size = 64
    if "tokenizer" in case:
        drawn = dict(case["tokenizer"])
        if "template" in drawn:
            drawn["config"] = drawn.get("config", {}) | {"chat_template": vocabularies.TEMPLATES[drawn.pop("template")]}
        if "gguf" in case["saving"]:
            size = ggml.tokenizer(drawn, case, reference)
        else:
            size = max(vocabularies.write(drawn, reference) + len(drawn.get("added", {})), size) + 8
    config = configuration(case, size)
    (reference / "config.json").write_text(json.dumps(config))
    if "generation" in case:
        (reference / "generation_config.json").write_text(json.dumps(case["generation"]))
    shutil.copytree(reference, model_folder)
    own = AutoConfig.from_pretrained(reference)
    model = AutoModelForCausalLM.from_config(own, dtype=torch.float32)
    randomise(model, case["weights"])
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith((".attn.bias", ".attention.bias", "masked_bias"))}
    head = case.get("head")
    embedding = "transformer.wte.weight" if case["family"] in ("gpt2", "gpt_neo") else "model.embed_tokens.weight"
    if head == "absent" or (own.tie_word_embeddings and head is None):
        state.pop("lm_head.weight", None)
    elif head == "own":
        state["lm_head.weight"] = state["lm_head.weight"] * 0.5 + 0.1
    elif head == "copy":
        state["lm_head.weight"] = state[embedding].clone()
    plain = {key: case["saving"][key] for key in ("type",) if key in case["saving"]}
    saving.write(state, plain, reference)
    if "gguf" in case["saving"]:
        shutil.rmtree(model_folder)
        model_folder.mkdir()
        ggml.write(model_folder / "model.gguf", case, own, state, reference)
        if "generation" in case:
            shutil.copy(reference / "generation_config.json", model_folder)
    else:
        saving.write(state, case["saving"], model_folder, case["family"])


# ------------------------------------------------------------------------------------------------------------------ comparing


class Reference:
    """transformers' model and tokenizer."""

    def __init__(self, case: dict, folder: Path):
        where = folder / "reference"
        self.model, told = AutoModelForCausalLM.from_pretrained(
            where, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        if told["missing_keys"]:
            raise ValueError(f"missing weights: {told['missing_keys']}")
        self.model.eval()
        # transformers has no end tokens where generation_config.json names none. grove has those of the model's configuration.
        own = self.model.generation_config
        if own.eos_token_id is None:
            own.eos_token_id = self.model.config.eos_token_id
        self.tokenizer = None
        if "tokenizer" in case:
            # Version 5 reads the SentencePiece model of a Mistral, or of files that name no class, by no class of SentencePiece's.
            reader = LlamaTokenizer if case["tokenizer"].get("form") == "model" else AutoTokenizer
            self.tokenizer = reader.from_pretrained(where)
        self.plain = None
        if self.tokenizer is not None and (where / "tokenizer.json").exists():
            from tokenizers import Tokenizer

            self.plain = Tokenizer.from_file(str(where / "tokenizer.json"))

    def logits(self, ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0]

    def generate(self, ids: list[int], **more) -> tuple[list[int], list[torch.Tensor]]:
        """A continuation, with the processed scores of each step. With a cache in any case: without one, angles that depend on the
        length of the text (dynamic, longrope) would change for its beginning too."""
        more["use_cache"] = True
        x = torch.tensor([ids])
        with torch.no_grad():
            out = self.model.generate(x, attention_mask=torch.ones_like(x), return_dict_in_generate=True, output_scores=True, **more)
        return out.sequences[0, len(ids) :].tolist(), [scores[0] for scores in out.scores]


def check(case: dict, folder: Path, programs: Programs) -> None:
    """Raises `Wrong`, `Refused` or `Invalid`; returns where all is equal."""
    try:
        build(case, folder)
        reference = Reference(case, folder)
        reference.logits([1, 2, 3])
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    asked = case["ask"]
    program = {"gpt2": "gpt2", "gpt_neo": "gpt_neo"}.get(case["family"], "llama")
    model = folder / "model"
    if "gguf" in case["saving"]:
        model = model / "model.gguf"
    elif "file" in asked and len(files := [*model.glob("*.safetensors"), *model.glob("*.bin")]) == 1:
        model = files[0]
    Comparison(case, reference, programs, program, model, asked).run()


class Comparison:
    def __init__(self, case: dict, reference: Reference, programs: Programs, program: str, model: Path, asked: dict):
        self.case, self.reference, self.programs = case, reference, programs
        self.program, self.model, self.asked = program, model, asked
        self.generation = case.get("generation", {})
        self.beyond = case["sizes"].get("beyond", False)
        quantized = case["saving"].get("gguf", "").startswith("Q")
        self.close, self.near = (CLOSE_QUANTIZED, NEAR_TIE_QUANTIZED) if quantized else (CLOSE, NEAR_TIE)

    def grove(self, *arguments: str, stdin: str = "") -> tuple[dict, str]:
        return self.programs.ask(self.program, *arguments, "--dtype", "f32", model=self.model, stdin=stdin)

    def prompt(self) -> list[str]:
        if "ids" in self.asked:
            return ["--prompt-ids", ",".join(map(str, self.asked["ids"]))]
        return ["--prompt", self.asked["prompt"]]

    def run(self) -> None:
        if self.asked.get("chat"):
            return self.chat()
        ids = self.tokens()
        if 1 < len(ids) < self.case["sizes"]["positions"]:
            self.loss(ids)
        self.text(ids)

    def tokens(self) -> list[int]:
        """The tokens of the prompt."""
        right = self.asked.get("ids")
        if right is None:
            try:
                right = self.reference.tokenizer(self.asked["prompt"]).input_ids
            except Exception as error:
                raise Invalid(f"the tokenizer: {error}") from error
        if not right or (len(right) + 1 > self.case["sizes"]["positions"] and not self.beyond):
            raise Invalid("the prompt has no tokens, or does not fit")
        found, said = self.grove(*self.prompt(), "--max-new-tokens", "1", "--temperature", "0")
        if found["prompt_ids"] != right:
            # transformers 4 and the file itself have other tokens than version 5, and grove says so.
            own = "makes this tokenizer anew" in said and self.reference.plain.encode(self.asked["prompt"]).ids
            if found["prompt_ids"] != own:
                raise Wrong(f"prompt_ids are {found['prompt_ids']}; right is {right} ({self.reference.tokenizer.convert_ids_to_tokens(right)})")
        return found["prompt_ids"]

    def loss(self, ids: list[int]) -> None:
        """The mean loss of the prompt."""
        logits = self.reference.logits(ids).double()
        right = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
        found, _ = self.grove(*self.prompt(), "--score")
        if not abs(found["loss"] - right) <= self.close * max(1.0, abs(right)):
            raise Wrong(f"loss is {found['loss']}; right is {right}")

    def options(self) -> tuple[list[str], dict]:
        """The words for grove, and the settings for transformers, that say the same."""
        words, settings = [], {}
        drawn = self.generation.get("do_sample")
        if not (drawn is False or (drawn and self.generation.get("top_k") == 1)):
            words += ["--temperature", "0"]
            settings["do_sample"] = False
        length = self.asked.get("max_new_tokens")
        if length is None and not any(self.generation.get(key) for key in ("max_new_tokens", "max_length")):
            length = 9
        if length is not None:
            words += ["--max-new-tokens", str(length)]
            settings["max_new_tokens"] = length
        if "repetition_penalty" in self.asked:
            words += ["--repetition-penalty", str(self.asked["repetition_penalty"])]
            settings["repetition_penalty"] = self.asked["repetition_penalty"]
        return words, settings

    def text(self, ids: list[int]) -> None:
        """The greedy continuation."""
        words, settings = self.options()
        tokenizer = self.reference.tokenizer
        stops = self.generation.get("stop_strings") or []
        stops = [stops] if isinstance(stops, str) else list(stops)
        if "stop" in self.asked and tokenizer is not None:
            words += ["--stop", self.asked["stop"]]
            stops.append(self.asked["stop"])
        if tokenizer is None and self.generation.get("stop_strings"):
            raise Invalid("stop strings need a tokenizer")
        ends = self.ends()
        if self.asked.get("ignore_eos"):
            words.append("--ignore-eos")
        for option in ("samples", "jit"):
            if option in self.asked:
                words += [f"--{option}"] + ([str(self.asked[option])] if option == "samples" else [])
        if "draft" in self.asked:
            words += ["--draft", str(self.model), "--draft-tokens", str(self.asked["draft"])]
        try:
            if stops:
                settings |= dict(stop_strings=stops, tokenizer=tokenizer)
            if self.asked.get("ignore_eos"):
                if set(self.generation) & {"min_length", "min_new_tokens", "exponential_decay_length_penalty", "bad_words_ids"}:
                    raise ValueError("rules about ends, which are ignored")
                own = self.reference.model.generation_config
                own.eos_token_id, ends = None, []
            right, scores = self.reference.generate(ids, **settings)
        except Exception as error:
            raise Invalid(f"generate: {error}") from error
        if len(ids) + len(right) >= self.case["sizes"]["positions"] and not self.beyond:
            raise Invalid("the text does not fit")
        found, _ = self.grove(*self.prompt(), *words)
        rows, texts = found["generated_ids"], found["text"]
        if "samples" in self.asked:
            if rows[0] != rows[1] or texts[0] != texts[1]:
                raise Wrong(f"two greedy samples differ: {rows}")
            rows, texts = rows[0], texts[0]
        self.compare(rows, texts, right, scores, ends, stops, ids)

    def ends(self) -> list[int]:
        ends = self.reference.model.generation_config.eos_token_id
        return [] if ends is None else ends if isinstance(ends, list) else [ends]

    def compare(self, found: list[int], text: str | None, right: list[int], scores, ends, stops, prompt) -> None:
        kept = right[:-1] if right and right[-1] in ends else right
        if found != kept:
            step = next((i for i, (a, b) in enumerate(zip(found, kept)) if a != b), min(len(found), len(kept)))
            if step < len(scores):
                mine, own = (row[step] if step < len(row) else None for row in (found, right))
                candidates = ends if mine is None else [mine]
                best = scores[step].max()
                size = max(1.0, scores[step][scores[step].isfinite()].abs().max().item())
                if any((best - scores[step][token]).item() <= self.near * size for token in candidates if token != own and token < len(scores[step])):
                    return
            # A stop string may be complete before the end of its token: the text tells.
            if not (stops and self.reference.tokenizer is not None and found == kept[: len(found)] and len(kept) - len(found) <= 1):
                raise Wrong(f"generated_ids are {found}; right is {kept}{' and the end' if kept != right else ''}")
        if text is not None and self.reference.tokenizer is not None:
            expected = self.continuation(prompt, kept, stops)
            if not self.same_text(text, expected):
                raise Wrong(f"text is {text!r}; right is {expected!r}")

    def same_text(self, found: str, right: str) -> bool:
        """Text that is shown while it comes cannot take back bytes which later ones make invalid: any characters may stand
        for those of the vocabulary's bytes that the whole text has as U+FFFD."""
        if found == right or "byte_fallback" not in repr(getattr(self.reference.tokenizer, "backend_tokenizer", "")):
            return found == right
        pattern = re.sub("\ufffd+", ".+", re.escape(right))
        return re.fullmatch(pattern, found, re.DOTALL) is not None

    def continuation(self, prompt: list[int], new: list[int], stops: list[str]) -> str:
        decode = lambda ids: self.reference.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        before, whole = decode(prompt), decode(prompt + new)
        text = whole[len(before) :] if whole.startswith(before) else decode(new)
        places = [text.find(stop) for stop in stops if stop in text]
        return text[: min(places)] if places else text

    def chat(self) -> None:
        """One or two turns of a conversation."""
        words, settings = self.options()
        tokenizer, asked = self.reference.tokenizer, self.asked
        said = [asked["prompt"]] + ([asked["second"]] if "second" in asked else [])
        messages = [{"role": "system", "content": asked["system"]}] if "system" in asked else []
        stops = self.generation.get("stop_strings") or []
        stops = [stops] if isinstance(stops, str) else list(stops)
        if stops:
            settings["tokenizer"] = tokenizer
        system = ["--system", asked["system"]] if "system" in asked else []
        grove = lambda: self.grove("--chat", *system, *words, stdin="\n".join(said) + "\n")
        answer = None
        for turn, text in enumerate(said):
            messages.append({"role": "user", "content": text})
            try:
                rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
                ids = tokenizer(rendered, add_special_tokens=False).input_ids
                if not ids:
                    raise ValueError("no tokens")
                right, scores = self.reference.generate(ids, **settings)
            except Exception as error:
                raise Invalid(f"chat: {error}") from error
            if len(ids) + len(right) >= self.case["sizes"]["positions"]:
                raise Invalid("the chat does not fit")
            if answer is None:
                answer, note = grove()
            kept = right[:-1] if right and right[-1] in self.ends() else right
            expected = self.continuation(ids, kept, stops).strip(SPACES)
            found = answer["turns"][turn]["assistant"]
            if not self.same_text(found, expected):
                top = [row[row.isfinite()].topk(2).values for row in scores if row.isfinite().sum() > 1]
                ties = any((best[0] - best[1]).item() < self.near * max(1, best[0].abs().item()) for best in top)
                if ties or "makes this tokenizer anew" in note:
                    return
                raise Wrong(f"turn {turn + 1} is {found!r}; right is {expected!r} after {rendered!r}")
            messages.append({"role": "assistant", "content": found})


transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
