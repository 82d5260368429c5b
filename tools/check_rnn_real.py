"""Makes references for two recurrent networks with trained weights on PyPI, by the code of their packages.

    pip download --no-deps resemblyzer g2p-en
    python tools/check_rnn_real.py --resemblyzer WHEEL_OR_DIR --g2p WHEEL_OR_DIR --out DIR

Neither package needs to be installed, because their imports for audio and text are stubbed. Either option may be omitted.

DIR/resemblyzer: `pretrained.pt` as shipped (an old container, before zip; the weights are under `model_state`, "lstm.*"
and "linear.*") and `reference.safetensors`: `mels` [5, 160, 40], `y` [5, 160, 256], the outputs of the last LSTM layer at
each step, `h_n` and `c_n` [3, 5, 256], `embeds` [5, 256] = normalised relu(linear(h_n[2])); the same for six utterances
of `unequal.lengths` [6] in `unequal.mels` [6, 190, 40], random beyond the lengths, where `unequal.y` is 0; the package
ran each utterance alone.

DIR/g2p: `checkpoint20.npz` as shipped and `reference.safetensors`; `words.json` has the words and their phonemes.
GRUs are PyTorch's: gates r, z, n, the reset gate after the product. `letter_ids` [words, t], ended by 2, padded with 0,
`lengths` [words]; `encoder.y` [words, t, 256], 0 beyond the lengths, `encoder.h_n` [words, 256]; the greedy decoder
starts with that state and token 2, and runs until it predicts 3, at most 20 steps: `decoder.input_ids`, `decoder.y`,
`decoder.logits` [words, 20 (, 256 or 74)], 0 after `decoder.steps` [words]; `phoneme_ids` [words, 20], without the 3
and padded with 0, `phoneme_lengths` [words].

Checks that torch's layers agree with the packages: exit status 1 if they differ by more than 1e-4 of the largest value.
"""

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS = """
    grove activationist a i tree birch hawthorn undergrowth rhododendron photosynthesis zyzzyva queue through thorough
    knight psychology xylophone rhythm eighth strengths uncopyrightable pneumonia jabberwocky quidditch frobnicate
    tensor gradients backpropagation softmaxes recurrent kubernetes blockchain covfefe hobbit galadriel brexit
    unfriended cryptocurrency selfies twerking mansplaining yoghurt worcestershire gloucester llanelli ax zz mm
    bookkeeper antidisestablishmentarianism don't
""".split()


class Difference:
    """The largest difference so far, relative to the largest value of the reference."""

    largest = 0.0

    def note(self, ours: Tensor, reference: Tensor) -> None:
        far = ((ours - reference).abs().max() / reference.abs().max()).item()
        self.largest = max(self.largest, far) if far == far else float("inf")


def package(source: Path, name: str, scratch: Path) -> Path:
    if source.is_file():
        with zipfile.ZipFile(source) as wheel:
            wheel.extractall(scratch)
        source = scratch
    found = source / name if (source / name).is_dir() else source
    if not (found / "__init__.py").is_file():
        sys.exit(f"{source}: no package {name} in it; give the wheel or the folder that it was unpacked to")
    return found


def load(path: Path, module: str, without: list[str]) -> ModuleType:
    """Imports a module of the package without its __init__ and the modules in `without`."""
    parent = ModuleType(path.name)
    parent.__path__ = [str(path)]
    sys.modules[path.name] = parent
    for name in without:
        sys.modules[name] = MagicMock()
    return importlib.import_module(f"{path.name}.{module}")


def resemblyzer(path: Path, out: Path) -> float:
    encoder = load(path, "voice_encoder", ["resemblyzer.audio"]).VoiceEncoder("cpu", verbose=False)
    generator = torch.Generator().manual_seed(3)

    # Mel band powers: non-negative, with a few large values.
    def mels(*shape: int) -> Tensor:
        return torch.rand(*shape, 40, generator=generator) ** 4

    def run(mels: Tensor) -> dict[str, Tensor]:
        y, (h_n, c_n) = encoder.lstm(mels)
        return dict(y=y, h_n=h_n, c_n=c_n, embeds=encoder(mels))

    difference = Difference()
    with torch.no_grad():
        equal = mels(5, 160)
        tensors = {"mels": equal} | run(equal)

        unequal, lengths = mels(6, 190), torch.tensor([160, 31, 190, 1, 77, 160])
        alone = [run(row[None, :length]) for row, length in zip(unequal, lengths)]
        together = {"y": pad_sequence([one["y"][0] for one in alone], batch_first=True)}
        together |= {k: torch.cat([one[k] for one in alone], dim=1) for k in ("h_n", "c_n")}
        together["embeds"] = torch.cat([one["embeds"] for one in alone])
        packed = pack_padded_sequence(unequal, lengths, batch_first=True, enforce_sorted=False)
        y, (h_n, c_n) = encoder.lstm(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        for k, v in dict(y=y, h_n=h_n, c_n=c_n).items():
            difference.note(v, together[k])
    together |= dict(mels=unequal, lengths=lengths)
    tensors |= {f"unequal.{k}": v for k, v in together.items()}

    shutil.copyfile(path / "pretrained.pt", out / "pretrained.pt")
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / "reference.safetensors")
    print(f"resemblyzer: packed and one at a time differ by {difference.largest:.1e}; {out}")
    return difference.largest


def g2p(path: Path, out: Path) -> float:
    without = ["nltk", "nltk.corpus", "nltk.tokenize", "inflect"]
    model = load(path, "g2p", without).G2p()
    v = {k: torch.from_numpy(np.ascontiguousarray(model.variables[k])) for k in model.variables.files}

    def torch_gru(prefix: str) -> nn.GRU:
        gru = nn.GRU(v[f"{prefix}_w_ih"].shape[1], v[f"{prefix}_w_hh"].shape[1], batch_first=True)
        parts = dict(weight_ih_l0="w_ih", weight_hh_l0="w_hh", bias_ih_l0="b_ih", bias_hh_l0="b_hh")
        gru.load_state_dict({k: v[f"{prefix}_{part}"] for k, part in parts.items()})
        return gru

    def encode(word: str) -> tuple[np.ndarray, np.ndarray]:
        ids = np.array([model.g2idx.get(char, model.g2idx["<unk>"]) for char in word] + [model.g2idx["</s>"]])
        x = model.encode(word)
        assert (x[0] == model.enc_emb[ids]).all()
        return ids, model.gru(x, len(ids), model.enc_w_ih, model.enc_w_hh, model.enc_b_ih, model.enc_b_hh)[0]

    # The package's decoding loop returns no logits. This copy must produce the same phonemes.
    def decode(word: str, h: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray, list[int]]:
        inputs, ys, logits, phonemes = [2], [], [], []
        for _ in range(20):
            x = model.dec_emb[inputs[-1:]]
            h = model.grucell(x, h, model.dec_w_ih, model.dec_w_hh, model.dec_b_ih, model.dec_b_hh)
            ys.append(h[0])
            logits.append(h[0] @ model.fc_w.T + model.fc_b)
            best = int(logits[-1].argmax())
            if best == 3:
                break
            phonemes.append(best)
            inputs.append(best)
        assert [model.idx2p[i] for i in phonemes] == model.predict(word), word
        return inputs[: len(ys)], np.stack(ys), np.stack(logits), phonemes

    def padded(rows, steps: int | None = None) -> Tensor:
        rows = [torch.as_tensor(row) for row in rows]
        steps = steps or max(map(len, rows))
        whole = torch.zeros(len(rows), steps, *rows[0].shape[1:], dtype=rows[0].dtype)
        for row, values in zip(whole, rows):
            row[: len(values)] = values
        return whole

    letters, encoded = zip(*(encode(word) for word in WORDS))
    inputs, ys, logits, phonemes = zip(*(decode(word, y[-1:]) for word, y in zip(WORDS, encoded)))
    tensors = {
        "letter_ids": padded(letters),
        "lengths": torch.tensor([len(row) for row in letters]),
        "encoder.y": padded(encoded),
        "encoder.h_n": torch.stack([torch.from_numpy(y[-1]) for y in encoded]),
        "decoder.input_ids": padded(inputs, 20),
        "decoder.steps": torch.tensor([len(row) for row in inputs]),
        "decoder.y": padded(ys, 20),
        "decoder.logits": padded(logits, 20),
        "phoneme_ids": padded([torch.tensor(row, dtype=torch.int64) for row in phonemes], 20),
        "phoneme_lengths": torch.tensor([len(row) for row in phonemes]),
    }

    difference = Difference()
    with torch.no_grad():
        steps = tensors["lengths"]
        packed = pack_padded_sequence(v["enc_emb"][tensors["letter_ids"]], steps, batch_first=True, enforce_sorted=False)
        y, h_n = torch_gru("enc")(packed)
        difference.note(pad_packed_sequence(y, batch_first=True)[0], tensors["encoder.y"])
        difference.note(h_n[0], tensors["encoder.h_n"])
        y, _ = torch_gru("dec")(v["dec_emb"][tensors["decoder.input_ids"]], h_n)
        ran = torch.arange(20) < tensors["decoder.steps"][:, None]
        difference.note(y[ran], tensors["decoder.y"][ran])
        difference.note((y @ v["fc_w"].T + v["fc_b"])[ran], tensors["decoder.logits"][ran])
        first, second = tensors["decoder.logits"][ran].topk(2).values.unbind(-1)

    shutil.copyfile(path / "checkpoint20.npz", out / "checkpoint20.npz")
    save_file(tensors, out / "reference.safetensors")
    spoken = {word: [model.idx2p[i] for i in row] for word, row in zip(WORDS, phonemes)}
    lines = [f"{json.dumps(word)}: {json.dumps(row)}" for word, row in spoken.items()]
    (out / "words.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(
        f"g2p: torch's GRU and the package's differ by {difference.largest:.1e} over {len(WORDS)} words; "
        f"the best phoneme leads by {(first - second).min():.3f} at least; {out}"
    )
    return difference.largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resemblyzer", type=Path, help="wheel, or the folder that it was unpacked to")
    parser.add_argument("--g2p", type=Path, help="wheel, or the folder that it was unpacked to")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)

    differences = []
    for source, name, make in [(args.resemblyzer, "resemblyzer", resemblyzer), (args.g2p, "g2p_en", g2p)]:
        if source is not None:
            out = args.out / make.__name__
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory() as scratch:
                differences.append(make(package(source, name, Path(scratch)), out))
    if not differences:
        parser.error("give --resemblyzer, --g2p or both")
    sys.exit(0 if max(differences) <= 1e-4 else 1)


if __name__ == "__main__":
    main()
