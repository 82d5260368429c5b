"""Cases of decoders with a head that classifies texts: GPT-2, GPT-Neo, LLaMA, Mistral, Qwen2 and Qwen3."""

import json
import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, LlamaTokenizer

import adapters
import decoder_draws
import decoders
import saving
import vocabularies
from draws import Draws
from encoders import PROBLEMS, compare_labels, labels
from programs import Invalid, Programs

NAMES = ["no", "yes", "maybe", "so", "not"]


def draw(draws: Draws, family: str) -> dict:
    """Draws a case. `sizes` and `ask` are required; any other key can be dropped."""
    base, heads, layers = draws.choice(decoders.FAMILIES), draws.choice([1, 2, 3, 4]), draws.choice([1, 2, 2, 3])
    case = {"family": family, "weights": draws.randrange(1 << 30)}
    sizes = {"base": base, "heads": heads, "width": heads * draws.choice([6, 8, 16]), "layers": layers}
    case["sizes"] = sizes | {"positions": draws.choice([48, 64, 96])}
    own = decoder_draws.gpt(draws, base) if base.startswith("gpt") else decoder_draws.llama(draws, base, heads, layers)
    case["config"] = decoder_draws.general(draws) | own | labelling(draws)
    case["config"].pop("attn_implementation", None)
    case["saving"] = saving.draw(draws, base)
    case["tokenizer"] = vocabularies.of_decoder(draws, base)
    case["tokenizer"].pop("template", None)
    texts = [" ".join(vocabularies.text(draws, draws.choice([1, 4, 8])).split()) or "a" for _ in range(draws.choice([1, 2, 4]))]  # fmt: skip
    if draws.chance(0.3):
        texts = [text + "\t" + draws.choice(vocabularies.WORDS).strip() + " a" for text in texts]
    case["ask"] = {"task": "classify", "texts": texts}
    case["ask"] |= draws.some({"batch_size": lambda: draws.choice([1, 2]), "max_length": lambda: draws.choice([6, 9])}, 0.2)  # fmt: skip
    return case | adapters.draw(draws, base, layers, "labels")


def labelling(draws: Draws) -> dict:
    """Draws the keys of labels."""
    count = draws.choice([1, 2, 3, 5])
    found = draws.some({"problem_type": lambda: draws.choice(PROBLEMS + [None])}, 0.4)
    found |= draws.some({"pad_token_id": lambda: draws.choice([0, 1, 5, 20, None])}, 0.6)
    if draws.chance(0.7):
        return found | {"id2label": {str(i): NAMES[i] for i in range(count)}}
    return found | draws.some({"num_labels": lambda: count}, 0.5)


def build(case: dict, folder: Path) -> None:
    reference, model_folder, base = folder / "reference", folder / "model", case["sizes"]["base"]
    reference.mkdir(parents=True)
    size = vocabularies.write(case["tokenizer"], reference) + len(case["tokenizer"].get("added", {}))
    config = decoders.configuration(case | {"family": base}, max(size, 64) + 8)
    (reference / "config.json").write_text(json.dumps(config))
    shutil.copytree(reference, model_folder)
    model = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(reference), dtype=torch.float32)
    decoders.randomise(model, case["weights"])
    masks = (".attn.bias", ".attention.bias", "masked_bias")
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(masks)}
    saving.write(state, {key: case["saving"][key] for key in ("type",) if key in case["saving"]}, reference)
    saving.write(state, case["saving"], model_folder, base)


def check(case: dict, folder: Path, programs: Programs) -> None:
    """Raises `Wrong`, `Refused` or `Invalid`; returns if all results are equal."""
    asked, where = case["ask"], folder / "reference"
    try:
        build(case, folder)
        adapters.build(case, folder, AutoModelForSequenceClassification, folder / "model")
        model, told = AutoModelForSequenceClassification.from_pretrained(
            where, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        if told["missing_keys"]:
            raise ValueError(f"missing weights: {told['missing_keys']}")
        reader = LlamaTokenizer if case["tokenizer"].get("form") == "model" else AutoTokenizer
        model = adapters.adapted(case, folder, model).eval()
        right = labels(model, reader.from_pretrained(adapters.tokenizer_folder(case, folder)), case)
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    place, arguments, beside = adapters.arguments(case, folder, folder / "model")
    for option in ("batch_size", "max_length"):
        if option in asked:
            arguments += ["--" + option.replace("_", "-"), str(asked[option])]
    found, said = programs.ask("grove classify texts", *arguments, *asked["texts"], model=place, beside=beside)
    if "rebuilds this tokenizer" in said:
        raise Invalid("transformers 5 has other tokens than the file")
    compare_labels(found, right, said)
