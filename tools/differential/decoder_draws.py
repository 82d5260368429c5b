"""Random cases of language models: configurations, generation_config.json, and requests."""

import saving
import adapters
import vocabularies
from draws import Draws

ACTIVATIONS = ["gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate",
               "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu",
               "sqrtsoftplus", "swish", "tanh"]  # fmt: skip


def draw(draws: Draws, family: str) -> dict:
    """Draws a case. `sizes` and `ask` are required; any other key can be dropped."""
    heads, layers = draws.choice([1, 2, 3, 4]), draws.choice([1, 2, 2, 3])
    case = {"family": family, "weights": draws.randrange(1 << 30)}
    case["sizes"] = {
        "heads": heads,
        "width": heads * draws.choice([6, 8, 16]),
        "layers": layers,
        "positions": draws.choice([48, 64, 96, 128]),
    }
    case["config"] = general(draws) | (
        gpt(draws, family) if family in ("gpt2", "gpt_neo") else llama(draws, family, heads, layers)
    )
    if family == "gpt_neo":
        case["config"].pop("attn_implementation", None)
    case["saving"] = saving.draw(draws, family)
    if family == "llama" and draws.chance(0.12):
        case["saving"] = {"gguf": draws.choice(["F32", "F32", "F16", "BF16", "Q8_0", "Q4_0"])}
        case["config"] = for_gguf(draws, case["config"])
    if draws.chance(0.1):
        case["head"] = draws.choice(["own", "copy", "absent"])
    if family not in ("gpt2", "gpt_neo") and draws.chance(0.12):
        # Texts longer than the training context.
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
    return case | adapters.draw(draws, family, layers, "text")


def for_gguf(draws: Draws, config: dict) -> dict:
    """Returns the keys that GGUF metadata can express."""
    kept = {
        key: config[key]
        for key in ("num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "rope_theta")
        if key in config
    }
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
    """Draws keys of every configuration."""
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
    """Draws keys of GPT-2 or of GPT-Neo."""
    if family == "gpt2":
        rates, activation, epsilon = (
            ["resid_pdrop", "embd_pdrop", "attn_pdrop"],
            "activation_function",
            "layer_norm_epsilon",
        )
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
    """Draws keys of LLaMA, Mistral, Qwen2 or Qwen3."""
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
    elif family == "qwen3":
        own |= {"attention_bias": lambda: draws.choice([True, False])} | qwen_windows(draws, layers)
    elif family == "mistral":
        own |= {"sliding_window": lambda: draws.choice([None, 3, 7, 20, 4096])}
    else:
        own |= qwen_windows(draws, layers)
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
            config["rope_scaling"] |= {
                "type": config["rope_scaling"].get("rope_type", config["rope_scaling"].get("type"))
            }
    return config


def qwen_windows(draws: Draws, layers: int) -> dict:
    return {
        "use_sliding_window": lambda: draws.choice([True, True, False]),
        "sliding_window": lambda: draws.choice([None, 3, 7, 20]),
        "max_window_layers": lambda: draws.choice([0, 1, 2, 28]),
        "layer_types": lambda: [draws.choice(["full_attention", "sliding_attention"]) for _ in range(layers)],
    }


def scaling(draws: Draws, name: str) -> dict:
    """Draws a scaling of rotary positions."""
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
    """Draws a generation_config.json."""
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
        "bad_words_ids": lambda: [
            draws.sample(range(60), draws.choice([1, 1, 2])) for _ in range(draws.choice([1, 4, 20]))
        ],
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
    """Draws the request. It has either `prompt` or `ids`."""
    asked = {}
    length = draws.choice([1, 3, 6, 10])
    if text:
        asked["prompt"] = vocabularies.text(draws, length if case["sizes"]["positions"] < 96 else 2 * length) or "a"
    else:
        asked["ids"] = [draws.randrange(60) for _ in range(2 * length + draws.choice([1, 5, 10]))]
    if draws.chance(0.8):
        asked["max_new_tokens"] = draws.choice([1, 6, 12, 16])
    if text and case["family"] in ("llama", "mistral", "qwen2", "qwen3") and draws.chance(0.3):
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
