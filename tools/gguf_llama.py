"""Reads a LLaMA from a GGUF file into transformers' model, with gguf-py's dequantization.

transformers' own GGUF reader does not support scaled rope and silently keeps defaults for unknown keys.
"""

from pathlib import Path

import torch
from gguf import GGUFReader, GGUFWriter, dequantize
from transformers import LlamaConfig, LlamaForCausalLM

# transformers' names without `model.` and `layers.{i}`, and GGUF names without `blk.{i}`.
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}


def gguf_name(name: str) -> str:
    """Converts a name: `model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    stem, _, kind = name.removeprefix("model.").rpartition(".")
    if not stem.startswith("layers."):
        return f"{NAMES[stem]}.{kind}"
    _, layer, stem = stem.split(".", 2)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def interleaved(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Permutes the rows of a query or key matrix from transformers' order to that of Meta and of llama.cpp's `llama`
    models."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """The inverse of `interleaved`."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def add_sizes(writer: GGUFWriter, config) -> None:
    """Adds the sizes of a model to the metadata, and the base of its rotary angles."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))


class Metadata:
    def __init__(self, reader: GGUFReader):
        self.reader = reader
        if self("general.architecture") != "llama":
            raise ValueError(f"the architecture is {self('general.architecture')}, not llama")

    def __call__(self, key: str, default=None):
        field = self.reader.get_field(key)
        return default if field is None else field.contents()


def config(reader: GGUFReader) -> LlamaConfig:
    of = Metadata(reader)
    shapes = {tensor.name: tensor.shape for tensor in reader.tensors}  # innermost axis first
    hidden, heads = of("llama.embedding_length"), of("llama.attention.head_count")
    rope = dict(rope_type="default", rope_theta=of("llama.rope.freq_base", 10000.0))
    scaling = of("llama.rope.scaling.type", "none")
    if scaling == "linear":
        rope |= dict(rope_type="linear", factor=of("llama.rope.scaling.factor"))
    elif scaling != "none":
        raise ValueError(f"rope scaling {scaling} is not known here")
    return LlamaConfig(
        vocab_size=int(shapes["token_embd.weight"][1]),
        hidden_size=hidden,
        intermediate_size=of("llama.feed_forward_length"),
        num_hidden_layers=of("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=of("llama.attention.head_count_kv", heads),
        head_dim=of("llama.attention.key_length", hidden // heads),
        max_position_embeddings=of("llama.context_length"),
        rms_norm_eps=of("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters=rope,
        tie_word_embeddings="output.weight" not in shapes,
        bos_token_id=of("tokenizer.ggml.bos_token_id"),
        eos_token_id=of("tokenizer.ggml.eos_token_id"),
        attn_implementation="eager",
    )


def tensors(reader: GGUFReader) -> dict[str, torch.Tensor]:
    """Returns every tensor of the file under its own name, in float32, with rows in the file's order."""
    return {t.name: torch.from_numpy(dequantize(t.data, t.tensor_type).copy()) for t in reader.tensors}


def load(path: Path) -> LlamaForCausalLM:
    """Returns transformers' model in float32 with the file's weights."""
    reader = GGUFReader(path)
    settings = config(reader)
    stored = tensors(reader)
    frequency_factors = stored.pop("rope_freqs.weight", None)  # the form of LLaMA 3.1's scaling in GGUF files
    model = LlamaForCausalLM(settings).eval()
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight" and settings.tie_word_embeddings:
            continue
        tensor = stored.pop(gguf_name(name))
        if ".q_proj." in name:
            tensor = halves(tensor, settings.num_attention_heads)
        elif ".k_proj." in name:
            tensor = halves(tensor, settings.num_key_value_heads)
        state[name] = tensor
    if stored:
        raise ValueError(f"left over: {sorted(stored)}")
    wrong = model.load_state_dict(state, strict=False)
    assert not wrong.unexpected_keys and set(wrong.missing_keys) <= {"lm_head.weight"}, wrong
    model.tie_weights()
    if frequency_factors is not None:
        model.model.rotary_emb.inv_freq /= frequency_factors
    return model
