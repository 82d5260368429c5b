"""Converts PyTorch's weights to the structures of jax_models, for `check.py`."""

import jax
import numpy as np
import torch

import jax_models
import jax_runs


class Weights:
    """A state dict in the structures of jax_models."""

    def __init__(self, model: torch.nn.Module):
        self.state = {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}

    def __call__(self, name: str) -> np.ndarray:
        return self.state[name]

    def linear(self, *paths: str) -> dict:
        """Returns one linear layer, or several layers with the same input, concatenated."""
        found = dict(weight=np.concatenate([self(f"{path}.weight") for path in paths]).T)
        if f"{paths[0]}.bias" in self.state:
            found["bias"] = np.concatenate([self(f"{path}.bias") for path in paths])
        return found

    def norm(self, path: str) -> dict:
        return dict(scale=self(f"{path}.weight")) | (
            dict(shift=self(f"{path}.bias")) if f"{path}.bias" in self.state else {}
        )

    def projections(self, path: str, names: str) -> dict:
        return self.linear(*(f"{path}.{name}" for name in names.split()))


def resnet_weights(w: Weights, row: dict) -> dict:
    def unit(conv: str, norm: str) -> dict:
        found = w.norm(norm)
        if not row["train"]:
            found["scale"] = found["scale"] / np.sqrt(w(f"{norm}.running_var") + 1e-5)
            found["shift"] = found["shift"] - w(f"{norm}.running_mean") * found["scale"]
        return dict(kernel=w(f"{conv}.weight").transpose(2, 3, 1, 0), norm=found)

    def block(path: str) -> list:
        units = [unit(f"{path}.conv{k}", f"{path}.bn{k}") for k in (1, 2, 3)]
        shortcut = f"{path}.downsample"
        return units + ([unit(f"{shortcut}.0", f"{shortcut}.1")] if f"{shortcut}.0.weight" in w.state else [])

    stages = [[block(f"layer{i}.{j}") for j in range(depth)] for i, depth in enumerate(row["depths"], 1)]
    return dict(stem=unit("conv1", "bn1"), stages=stages, head=w.linear("fc"))


def vit_weights(w: Weights, row: dict) -> dict:
    def block(path: str) -> dict:
        attention = f"{path}.self_attention"
        return dict(
            norm_1=w.norm(f"{path}.ln_1"),
            qkv=dict(weight=w(f"{attention}.in_proj_weight").T, bias=w(f"{attention}.in_proj_bias")),
            out=w.linear(f"{attention}.out_proj"),
            norm_2=w.norm(f"{path}.ln_2"),
            up=w.linear(f"{path}.mlp.0"),
            down=w.linear(f"{path}.mlp.3"),
        )

    kernel = w("conv_proj.weight").transpose(2, 3, 1, 0)
    return dict(
        patches=dict(weight=kernel.reshape(-1, kernel.shape[-1]), bias=w("conv_proj.bias")),
        class_token=w("class_token"),
        positions=w("encoder.pos_embedding")[0],
        blocks=[block(f"encoder.layers.encoder_layer_{i}") for i in range(row["depth"])],
        norm=w.norm("encoder.ln"),
        head=w.linear("heads.head"),
    )


def bert_weights(w: Weights, row: dict) -> dict:
    stem = "bert." if row["train"] else ""

    def block(path: str) -> dict:
        return dict(
            norm_1=w.norm(f"{path}.attention.output.LayerNorm"),
            qkv=w.projections(f"{path}.attention.self", "query key value"),
            out=w.linear(f"{path}.attention.output.dense"),
            norm_2=w.norm(f"{path}.output.LayerNorm"),
            up=w.linear(f"{path}.intermediate.dense"),
            down=w.linear(f"{path}.output.dense"),
        )

    embeddings = f"{stem}embeddings"
    return dict(
        words=w(f"{embeddings}.word_embeddings.weight"),
        positions=w(f"{embeddings}.position_embeddings.weight"),
        types=w(f"{embeddings}.token_type_embeddings.weight"),
        norm=w.norm(f"{embeddings}.LayerNorm"),
        blocks=[block(f"{stem}encoder.layer.{i}") for i in range(row["config"]["num_hidden_layers"])],
        pooler=w.linear(f"{stem}pooler.dense"),
    ) | (dict(head=w.linear("classifier")) if row["train"] else {})


def gpt2_weights(w: Weights, row: dict) -> dict:
    return jax_runs.gpt2_parameters(lambda name: w(f"transformer.{name}"), row["config"]["n_layer"])


def gpt_neo_weights(w: Weights, row: dict) -> dict:
    def block(path: str) -> dict:
        return dict(
            norm_1=w.norm(f"{path}.ln_1"),
            qkv=w.projections(f"{path}.attn.attention", "q_proj k_proj v_proj"),
            out=w.linear(f"{path}.attn.attention.out_proj"),
            norm_2=w.norm(f"{path}.ln_2"),
            up=w.linear(f"{path}.mlp.c_fc"),
            down=w.linear(f"{path}.mlp.c_proj"),
        )

    return dict(
        words=w("transformer.wte.weight"),
        positions=w("transformer.wpe.weight"),
        blocks=[block(f"transformer.h.{i}") for i in range(row["config"]["num_layers"])],
        norm=w.norm("transformer.ln_f"),
    )


def llama_weights(w: Weights, row: dict) -> dict:
    def block(path: str) -> dict:
        return dict(
            norm_1=w.norm(f"{path}.input_layernorm"),
            qkv=w.projections(f"{path}.self_attn", "q_proj k_proj v_proj"),
            out=w.linear(f"{path}.self_attn.o_proj"),
            norm_2=w.norm(f"{path}.post_attention_layernorm"),
            gate_up=w.projections(f"{path}.mlp", "gate_proj up_proj"),
            down=w.linear(f"{path}.mlp.down_proj"),
        )

    tied = row["config"]["tie_word_embeddings"]
    return dict(
        words=w("model.embed_tokens.weight"),
        blocks=[block(f"model.layers.{i}") for i in range(row["config"]["num_hidden_layers"])],
        norm=w.norm("model.norm"),
    ) | ({} if tied else dict(head=w.linear("lm_head")))


WEIGHTS = dict(
    resnet=resnet_weights,
    vit=vit_weights,
    bert=bert_weights,
    gpt2=gpt2_weights,
    gpt_neo=gpt_neo_weights,
    llama=llama_weights,
)


def weights(model: torch.nn.Module, row: dict) -> dict:
    found = WEIGHTS[row["kind"]](Weights(model), row)
    shapes = jax_models.MODELS[row["kind"]][0](row)
    assert jax.tree.map(np.shape, found) == shapes, "parameters have other shapes than a row's random ones"
    return jax.tree.map(jax.numpy.array, found)
