"""Compares the peers with each other at tiny sizes, and fails if they compute different functions.

    python benches/peers/check.py [NAME ...]

PyTorch's weights are copied into JAX's functions. For each row, prints the largest difference of the outputs relative
to the largest value. For training rows, prints the largest difference of the losses of ten steps relative to the
change of the loss. The ResNet is also compared with torchvision's.
"""

import os
import sys
import tempfile
from functools import partial
from typing import Callable

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import torch

import jax_models
import jax_ops
import jax_runs
import torch_models
import torch_ops
from check_weights import weights

LIMIT = 1e-4
# The change of a loss in ten steps is small relative to the loss, so rounding matters more.
TRAINING_LIMIT = 5e-4

GPT2 = dict(vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4)
GPT_NEO = dict(vocab_size=97, max_position_embeddings=16, hidden_size=32, num_layers=2, num_heads=4)
GPT_NEO |= dict(intermediate_size=48, window_size=3, attention_types=[[["global", "local"], 1]])
LLAMA = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
LLAMA |= dict(num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=1e-5, rope_theta=10000.0)
BERT = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
BERT |= dict(max_position_embeddings=16, type_vocab_size=2)
TEXTS = dict(batch=3, tokens=11)
MODELS = dict(
    resnet=dict(kind="resnet", depths=[2, 1, 2, 1], widths=8, classes=7, size=64, batch=5),
    vit=dict(kind="vit", size=16, patch=4, width=32, depth=2, heads=4, mlp=48, classes=7, batch=3),
    bert=dict(kind="bert", config=BERT, **TEXTS),
    gpt2=dict(kind="gpt2", config=GPT2, **TEXTS),
    gpt_neo=dict(kind="gpt_neo", config=GPT_NEO, **TEXTS),
    llama=dict(kind="llama", config=LLAMA | dict(tie_word_embeddings=False), **TEXTS),
    llama_tied=dict(kind="llama", config=LLAMA | dict(tie_word_embeddings=True), **TEXTS),
)


CPU, F32 = torch.device("cpu"), torch.float32


def difference(ours: object, theirs: object) -> float:
    """Returns the largest relative difference of all arrays, each relative to the largest value of its array."""
    found = []
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
        found.append(float(abs(a - b).max() / abs(b).max()))
    return max(found)


def alive(outputs: object) -> object:
    """Raises an error if all examples of a batch have the same outputs, which would make the comparison meaningless."""
    for x in jax.tree.leaves(outputs):
        assert np.ptp(x, axis=0).max() > 0.01 * abs(x).max(), "outputs do not depend on the input"
    return outputs


def arrays(tensors: object) -> object:
    return jax.tree.map(lambda tensor: tensor.detach().numpy().copy(), tensors)


# ----------------------------------------------------------------------------------------------------------------- ops

OPS = dict(
    gemm=dict(kind="gemm", m=5, k=7, n=3),
    selu=dict(kind="activation", function="selu", rows=3, columns=8),
    gelu=dict(kind="activation", function="gelu", rows=3, columns=8),
    chain_selu=dict(kind="chain", function="selu", rows=3, columns=8),
    chain_gelu=dict(kind="chain", function="gelu", rows=3, columns=8),
    softmax=dict(kind="softmax", rows=3, columns=8),
    layer_norm=dict(kind="layer_norm", rows=3, columns=8),
    ffn=dict(kind="ffn", rows=3, width=8, hidden=12),
    mha=dict(kind="mha", batch=2, tokens=5, width=12, heads=3, causal=False),
    mha_causal=dict(kind="mha", batch=2, tokens=5, width=12, heads=3, causal=True),
    attention=dict(kind="attention", batch=2, heads=3, tokens=5, head_dim=4, causal=False),
    attention_causal=dict(kind="attention", batch=2, heads=3, tokens=5, head_dim=4, causal=True),
    conv=dict(kind="conv", batch=2, out=6, size=9, kernel=3, stride=2, padding=1) | {"in": 4},
)


def jax_arguments(kind: str, given: list) -> list:
    """Converts PyTorch's arguments of a row to those of JAX's function."""
    if kind == "layer_norm":
        return [dict(scale=given[1], shift=given[2]), given[0]]
    if kind in ["ffn", "mha"]:
        x, w_first, b_first, w_last, b_last = given
        names = dict(ffn=("up", "down"), mha=("qkv", "out"))[kind]
        first, last = dict(weight=w_first.T, bias=b_first), dict(weight=w_last.T, bias=b_last)
        return [dict(zip(names, (first, last))), x]
    if kind == "conv":
        return [given[0].transpose(0, 2, 3, 1), given[1].transpose(2, 3, 1, 0)]
    return given


def check_op(row: dict) -> float:
    kind = row["kind"]
    function, arguments = torch_ops.OPS[kind](row, torch_ops.Randoms(CPU, F32))
    theirs = arrays(torch_ops.inference(function, arguments, False)())
    function, examples = jax_ops.OPS[kind](row, jax_ops.Randoms(np.dtype("float32")))
    given = jax_arguments(kind, arrays(arguments))
    assert jax.tree.map(np.shape, given) == jax.tree.map(np.shape, examples), "arguments have other shapes"
    ours = np.asarray(jax.jit(function)(*given))
    return difference(ours.transpose(0, 3, 1, 2) if kind == "conv" else ours, theirs)


def check_rnn(cell: str, lengths: list[int] | None) -> float:
    """Compares the hidden states of all steps, and the gradients of the weights."""
    steps, batch, inputs, hidden = 7, 4, 5, 6
    layer = dict(lstm=torch.nn.LSTM, gru=torch.nn.GRU)[cell](inputs, hidden)
    x, dy = torch.randn(steps, batch, inputs), torch.randn(steps, batch, hidden)
    y = torch_ops.rnn_forward(layer, x, None if lengths is None else torch.tensor(lengths))
    (y * dy).sum().backward()
    names = dict(w_ih="weight_ih_l0", w_hh="weight_hh_l0", b_ih="bias_ih_l0", b_hh="bias_hh_l0")
    p = {ours: getattr(layer, theirs).detach().numpy().T for ours, theirs in names.items()}
    gradients = {ours: getattr(layer, theirs).grad.numpy().T for ours, theirs in names.items()}

    def loss(p: dict) -> tuple:
        y = jax_ops.rnn_forward(p, x.numpy(), None if lengths is None else np.array(lengths), cell, 1)[0]
        return (y * dy.numpy()).sum(), y

    (_, ours), our_gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(p)
    return difference((ours, our_gradients), (y.detach().numpy(), gradients))


def check_adamw() -> float:
    """Compares the changes of three steps."""
    before = 0.01 * torch.randn(5, 7)
    gradients = torch.randn(3, 5, 7)
    theirs = torch.nn.Parameter(before.clone())
    optimizer = torch_ops.adamw([theirs])
    rule, ours = jax_ops.adamw(), before.numpy()
    state = rule.init(ours)
    for gradient in gradients:
        theirs.grad = gradient.clone()
        optimizer.step()
        updates, state = rule.update(gradient.numpy(), state, ours)
        ours = ours + updates
    return difference(ours - before.numpy(), (theirs.detach() - before).numpy())


# -------------------------------------------------------------------------------------------------------------- models


def enlarge(model: torch.nn.Module) -> None:
    """Scales the activations of a small transformer to about 1, so that variants of GELU differ and positions matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name and not name.endswith(("wte.weight", "wpe.weight")):
                parameter.mul_(10.0)


def made(row: dict) -> tuple:
    """Returns PyTorch's model, its weights for JAX, and the input and labels of both."""
    model = torch_models.fill(torch_models.MODELS[row["kind"]](row))
    if row["kind"] == "resnet":
        for name, values in model.named_buffers():
            if "running" in name:
                # Means near zero: others would make ReLU cut off all differences between images.
                values.normal_(std=0.1) if "mean" in name else values.uniform_(0.5, 1.5)
    if "config" in row:
        enlarge(model)
    x, labels = torch_models.inputs(row, CPU, F32)
    if row["train"]:
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.reset_running_stats()
    is_image = x.is_floating_point()
    given = x.permute(0, 2, 3, 1).numpy() if is_image else x.numpy()
    return model.train(row["train"]), weights(model, row), (x, labels), (jax.numpy.array(given), labels.numpy())


def check_model(row: dict) -> float:
    row = row | dict(train=False)
    model, parameters, (x, _), (given, _) = made(row)
    with torch.inference_mode():
        theirs = alive(arrays(torch_models.outputs(row["kind"], False)(model, x)))
    return difference(jax.jit(partial(jax_models.MODELS[row["kind"]][1], row))(parameters, given), theirs)


def check_training(row: dict) -> float:
    row = row | dict(train=True)
    model, parameters, theirs, ours = made(row)
    their_step = torch_models.trainer(model, torch_models.outputs(row["kind"], True), *theirs)
    our_step = jax_runs.trainer(row, parameters, *ours)
    their_losses, our_losses = (np.array([step() for _ in range(10)]) for step in (their_step, our_step))
    return float(abs(our_losses - their_losses).max() / np.ptp(their_losses))


def check_running_statistics() -> float:
    """Compares the running statistics of a ResNet after a forward pass in training mode."""
    row = MODELS["resnet"] | dict(train=True)
    model, parameters, (x, _), (given, _) = made(row)
    with torch.no_grad():
        model(x)
    state = model.state_dict()
    statistics = jax_runs.first_statistics(jax_models.resnet_shapes(row))
    _, ours = jax.jit(jax_models.resnet_training)(parameters, statistics, given)
    # PyTorch orders them by module, with the shortcut last in its block.
    means = [state[name].numpy() for name in state if name.endswith("running_mean")]
    variances = [state[name].numpy() for name in state if name.endswith("running_var")]
    return difference(([x["mean"] for x in ours], [x["variance"] for x in ours]), (means, variances))


def check_torchvision() -> float:
    """Compares the ResNet with torchvision's, at torchvision's width: the parameter names and the logits."""
    import torchvision

    depths = [1, 2, 1, 1]
    theirs = torchvision.models.ResNet(torchvision.models.resnet.Bottleneck, depths, num_classes=5).eval()
    ours = torch_models.ResNet(depths, 64, 5).eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        return difference(ours(x).numpy(), alive(theirs(x).numpy()))


def gpt2() -> tuple:
    """Returns a model whose next token depends on more than the last one, with its row and its parameters."""
    row = dict(kind="gpt2", config=GPT2, train=False)
    model = torch_models.fill(torch_models.transformer(row)).eval()
    enlarge(model)
    return model, row, weights(model, row)


def check_decode() -> float:
    """Returns the fraction of tokens that differ, over several prompts. Each prompt is decoded twice, as in the
    benchmark."""
    model, _, parameters = gpt2()
    ours, theirs = [], []
    for prompt in torch.randint(GPT2["vocab_size"], (6, 1, 4)):
        decode = jax_runs.decoder(parameters, jax.numpy.array(prompt[0].numpy(), np.int32), GPT2["n_head"], 12)
        ours += [decode(), decode()]
        theirs += 2 * [[token for [token] in torch_models.greedy(model, prompt, 12)]]
    assert len(np.unique(theirs)) > 10, "tokens that repeat say little of the cache"
    return float(np.mean(np.array(ours) != np.array(theirs)))


def check_load() -> float:
    """Compares the logits of a saved model, with prefixed and unprefixed parameter names."""
    model, row, _ = gpt2()
    ids = torch.randint(GPT2["vocab_size"], (1, 9))
    found = []
    for part in [model, model.transformer]:
        with tempfile.TemporaryDirectory() as path, torch.inference_mode():
            part.save_pretrained(path)
            theirs = torch_models.reader(path, CPU, F32)().eval()(ids).logits.numpy()
            ours = jax_models.gpt2(row, jax_runs.read(path, np.float32), ids.numpy())
        found += [difference(theirs, model(ids).logits.detach().numpy()), difference(ours, theirs)]
    return max(found)


def checks() -> dict[str, tuple[Callable[[], float], float]]:
    found = {name: (partial(check_op, row), LIMIT) for name, row in OPS.items()}
    for cell in ["lstm", "gru"]:
        found[cell] = partial(check_rnn, cell, None), LIMIT
        found[f"{cell}_lengths"] = partial(check_rnn, cell, [3, 7, 1, 5]), LIMIT
    found["adamw"] = check_adamw, LIMIT
    for name, row in MODELS.items():
        found[name] = partial(check_model, row), LIMIT
        found[f"{name}_training"] = partial(check_training, row), TRAINING_LIMIT
    found["resnet_statistics"] = check_running_statistics, LIMIT
    found["resnet_torchvision"] = check_torchvision, LIMIT
    found["decode"] = check_decode, 0.0
    found["load"] = check_load, LIMIT
    return found


def main() -> None:
    wrong = []
    for name, (check, limit) in checks().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(0)  # Seed each check, so that results do not depend on which others run.
        found = check()
        # NaN must fail too.
        right = found <= limit
        print(f"{name:20} {found:8.1e}" + ("" if right else f"  more than {limit:.0e}"), flush=True)
        wrong += [] if right else [name]
    sys.exit(f"different: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
