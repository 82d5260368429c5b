"""Writes LLaMA models as GGUF files, as llama.cpp's converter does."""

import json
import sys
from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from programs import Invalid
from vocabularies import write as write_tokenizer

sys.path.append(str(Path(__file__).resolve().parents[1]))

import gguf_llama

# Begin token, by kind of tokenizer.
BEGIN = {"bpe": "<s>", "llama3": "<|endoftext|>", "digits": "<|endoftext|>"}
SCALINGS = {"linear": gguf.RopeScalingType.LINEAR, "yarn": gguf.RopeScalingType.YARN}


def write(file: Path, case: dict, config, state: dict, reference: Path) -> None:
    """Writes one file with weights, sizes and the tokenizer, and sets the weights of `reference` to those of the file."""
    rope, kind = config.rope_parameters, rope_kind(config)
    if config.attention_bias or config.mlp_bias or config.hidden_act != "silu":
        raise Invalid("GGUF has no such key")
    writer = gguf.GGUFWriter(file, "llama")
    gguf_llama.add_sizes(writer, config)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    if kind in SCALINGS:
        writer.add_rope_scaling_type(SCALINGS[kind])
        writer.add_rope_scaling_factor(float(rope["factor"]))
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    ends = case["config"].get("eos_token_id", 2)
    if isinstance(ends, list) or ends is None or case["config"].get("head_dim"):
        raise Invalid("GGUF has one end token, and heads that fill the width")
    if "tokenizer" in case:
        vocabulary(writer, case, reference, config)
    else:
        writer.add_eos_token_id(ends)
    tie(state, config)
    kind = gguf.GGMLQuantizationType[case["saving"]["gguf"]]
    changed = {}
    for name, tensor in state.items():
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        permuted = "q_proj" in name or "k_proj" in name
        tensor = gguf_llama.interleaved(tensor, heads) if permuted else tensor
        fits = tensor.dim() == 2 and tensor.shape[1] % 32 == 0
        own = kind if fits or (kind.name[0] in "FB" and tensor.dim() == 2) else gguf.GGMLQuantizationType.F32
        data = gguf.quantize(tensor.float().contiguous().numpy(), own)
        writer.add_tensor(gguf_llama.gguf_name(name), data, raw_dtype=own)
        back = torch.from_numpy(gguf.dequantize(data, own).copy()).reshape(tensor.shape)
        changed[name] = gguf_llama.halves(back, heads) if permuted else back
    if rope["rope_type"] == "llama3":
        scaled = LlamaForCausalLM(config).model.rotary_emb.inv_freq
        plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / scaled).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    from safetensors.torch import save_file

    save_file(
        {name: tensor.contiguous() for name, tensor in changed.items()},
        reference / "model.safetensors",
        {"format": "pt"},
    )


def rope_kind(config) -> str:
    kind = config.rope_parameters["rope_type"]
    extra = set(config.rope_parameters) - {
        "rope_type",
        "type",
        "rope_theta",
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    }
    if kind not in ("default", "linear", "llama3", "yarn") or extra:
        raise Invalid("GGUF has no such scaling")
    return kind


def tie(state: dict, config) -> None:
    if config.tie_word_embeddings and "lm_head.weight" in state:
        state.pop("lm_head.weight")


def tokenizer(drawn: dict, case: dict, reference: Path) -> int:
    """Writes the reference's tokenizer, with the special tokens of the file's metadata. Returns their number."""
    size = write_tokenizer(drawn, reference)
    t = Tokenizer.from_file(str(reference / "tokenizer.json"))
    names = {"bos_token": BEGIN[drawn["kind"]], "eos_token": t.id_to_token(case["config"].get("eos_token_id", 2))}
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | drawn.get("config", {}) | names
    (reference / "tokenizer_config.json").write_text(json.dumps(config))
    return size


def vocabulary(writer: gguf.GGUFWriter, case: dict, reference: Path, config) -> None:
    """Adds the tokenizer of the reference's tokenizer.json to the metadata."""
    t = Tokenizer.from_file(str(reference / "tokenizer.json"))
    known = t.get_vocab()
    tokens = sorted(known, key=known.get)
    kind = case["tokenizer"]["kind"]
    model = json.loads(t.to_str())
    control = {token["content"] for token in model["added_tokens"] if token["special"]}
    types = [gguf.TokenType.CONTROL if token in control else gguf.TokenType.NORMAL for token in tokens]
    if kind == "bpe":
        import sentencepiece
        from vocabularies import sentencepieces

        reader = sentencepiece.SentencePieceProcessor(model_proto=sentencepieces("bpe"))
        types = [
            gguf.TokenType.UNKNOWN if reader.is_unknown(i) else gguf.TokenType.CONTROL if reader.is_control(i)
            else gguf.TokenType.BYTE if reader.is_byte(i) else gguf.TokenType.USER_DEFINED if token == "<sep>" else gguf.TokenType.NORMAL
            for i, token in enumerate(tokens)
        ]  # fmt: skip
        scores = [reader.get_score(i) for i in range(len(tokens))]
    padded = config.vocab_size - len(tokens)
    tokens = tokens + [f"[PAD{i}]" for i in range(padded)]
    types = types + [gguf.TokenType.UNUSED] * padded
    writer.add_tokenizer_model("llama" if kind == "bpe" else "gpt2")
    writer.add_tokenizer_pre({"bpe": "default", "llama3": "llama-bpe", "digits": "smollm"}[kind])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if kind == "bpe":
        writer.add_token_scores(scores + [-1000.0] * padded)
        writer.add_add_space_prefix(True)
    else:
        writer.add_token_merges([" ".join(pair) for pair in model["model"]["merges"]])
    writer.add_add_bos_token(kind != "digits")
    writer.add_bos_token_id(known[BEGIN[kind]])
    end = case["config"].get("eos_token_id", 2)
    writer.add_eos_token_id(end)
    if "template" in case["tokenizer"]:
        from vocabularies import TEMPLATES

        writer.add_chat_template(TEMPLATES[case["tokenizer"]["template"]])
