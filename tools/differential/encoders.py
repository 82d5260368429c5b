"""Cases of BERT, DistilBERT and RoBERTa: masked words, text and pair classification, token classification, question
answering."""

import json
import shutil
from pathlib import Path

import torch
import transformers
from transformers import (
    AutoConfig, AutoModelForMaskedLM, AutoModelForQuestionAnswering, AutoModelForSequenceClassification,
    AutoModelForTokenClassification, AutoTokenizer, pipeline,
)  # fmt: skip

import adapters
import saving
import vocabularies
from decoder_draws import ACTIVATIONS
from decoders import randomise
from draws import Draws
from programs import Invalid, Programs, Wrong

FAMILIES = ["bert", "distilbert", "roberta"]
TASKS = {
    "fill-mask": AutoModelForMaskedLM,
    "classify": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
    "answer": AutoModelForQuestionAnswering,
}
PROBLEMS = ["regression", "single_label_classification", "multi_label_classification"]
CLOSE = 2e-4


def draw(draws: Draws, family: str) -> dict:
    """Draws a case. `sizes` and `ask` are required; any other key can be dropped."""
    case = without_adapter(draws, family)
    return case | adapters.draw(draws, family, case["sizes"]["layers"], case["ask"]["task"])


def without_adapter(draws: Draws, family: str) -> dict:
    task = draws.choice(list(TASKS))
    heads = draws.choice([1, 2, 3])
    case = {"family": family, "weights": draws.randrange(1 << 30)}
    case["sizes"] = {
        "heads": heads,
        "width": heads * draws.choice([6, 8]),
        "layers": draws.choice([1, 2]),
        "positions": draws.choice([40, 64]),
    }
    case["config"] = configuration_keys(draws, family, task)
    case["saving"] = saving.draw(draws, family)
    case["tokenizer"] = vocabularies.of_encoder(draws, family)
    texts = [
        vocabularies.text(draws, draws.choice([1, 4, 8])).strip() or "a" for _ in range(draws.choice([1, 1, 2, 4]))
    ]
    texts = [" ".join(text.split()) for text in texts]
    if task == "fill-mask":
        mask = "<mask>" if family == "roberta" else "[MASK]"
        texts = [
            (text if draws.chance(0.5) else "")
            + draws.choice([" ", ""] if family != "roberta" else [""])
            + mask
            + " "
            + text
            for text in texts
        ]
    if task == "classify" and draws.chance(0.3):
        texts = [text + "\t" + draws.choice(vocabularies.WORDS).strip() + " a" for text in texts]
    case["ask"] = {"task": task, "texts": texts}
    if task == "answer":
        case["ask"]["question"] = " ".join(vocabularies.text(draws, 3).split()) or "who"
    case["ask"] |= draws.some({"batch_size": lambda: draws.choice([1, 2])}, 0.2)
    if task == "classify":
        case["ask"] |= draws.some({"max_length": lambda: draws.choice([6, 9])}, 0.2)
    return case


def configuration_keys(draws: Draws, family: str, task: str) -> dict:
    rates = ["dropout", "attention_dropout", "seq_classif_dropout", "qa_dropout"] if family == "distilbert" else [
        "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"]  # fmt: skip
    activation = "activation" if family == "distilbert" else "hidden_act"
    own = {activation: lambda: draws.choice(ACTIVATIONS)} | {rate: draws.rate for rate in rates}
    if family == "distilbert":
        own |= {"sinusoidal_pos_embds": lambda: draws.choice([True, False]), "pad_token_id": lambda: 0}
    else:
        own |= {
            "layer_norm_eps": lambda: draws.choice([1e-12, 1e-5, 1e-3]),
            "type_vocab_size": lambda: draws.choice([1, 2, 3] if family == "roberta" else [2, 3]),
            "use_cache": lambda: True,
        }
    labels = draws.choice([1, 2, 3, 5])
    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"] if task == "tokens" else ["no", "yes", "maybe", "so", "not"]
    found = draws.some(own, 0.25)
    if task == "tokens":
        labels = 5
    if task in ("tokens", "classify") and draws.chance(0.8):
        found["id2label"] = {str(i): names[i] for i in range(labels)}
    elif task == "classify" and draws.chance(0.4):
        found["num_labels"] = labels
    if task == "classify":
        found |= draws.some({"problem_type": lambda: draws.choice(PROBLEMS + [None])}, 0.4)
    return found | draws.some(
        {
            "initializer_range": lambda: 0.02,
            "architectures": lambda: ["SomeModel"],
            "torch_dtype": lambda: draws.choice(["float32", "float16"]),
            "transformers_version": lambda: "4.30.0",
            "tie_word_embeddings": lambda: draws.mostly(True, [False], 0.3),
            "gradient_checkpointing": lambda: False,
            "position_embedding_type": lambda: draws.mostly("absolute", ["relative_key", "relative_key_query"], 0.1),
            "label2id": lambda: {name: i for i, name in enumerate(names[:labels])},
        },
        0.15,
    ) | draws.rare(
        {"is_decoder": lambda: draws.choice([False, True]), "add_cross_attention": lambda: False, "chunk_size_feed_forward": lambda: draws.choice([0, 4]),
         "pad_token_id": lambda: draws.choice([0, 1, 3]), "bos_token_id": lambda: 2, "output_attentions": lambda: False, "pruned_heads": lambda: {},
         "return_dict": lambda: True, "some_note": lambda: [1], "is_encoder_decoder": lambda: False}, 0.2)  # fmt: skip


def configuration(case: dict, vocabulary: int) -> dict:
    family, sizes = case["family"], case["sizes"]
    names = ["dim", "n_heads", "n_layers", "max_position_embeddings", "hidden_dim"] if family == "distilbert" else [
        "hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings", "intermediate_size"]  # fmt: skip
    values = [sizes["width"], sizes["heads"], sizes["layers"], sizes["positions"], 2 * sizes["width"]]
    config = dict(zip(names, values)) | {"model_type": family, "vocab_size": vocabulary}
    if family == "roberta":
        config |= {"pad_token_id": 1}
    return config | case["config"]


def build(case: dict, folder: Path, kind) -> None:
    reference, model_folder = folder / "reference", folder / "model"
    reference.mkdir(parents=True)
    size = vocabularies.write(case["tokenizer"], reference) + len(case["tokenizer"].get("added", {})) + 6
    (reference / "config.json").write_text(json.dumps(configuration(case, size)))
    shutil.copytree(reference, model_folder)
    own = AutoConfig.from_pretrained(reference)
    model = kind.from_config(own, dtype=torch.float32)
    randomise(model, case["weights"])
    state = {name: tensor for name, tensor in model.state_dict().items() if "position_ids" not in name}
    if own.tie_word_embeddings:
        for name in (
            "cls.predictions.decoder.weight",
            "cls.predictions.decoder.bias",
            "lm_head.decoder.weight",
            "lm_head.decoder.bias",
            "vocab_projector.weight",
        ):
            state.pop(name, None)
    saving.write(state, {key: case["saving"][key] for key in ("type",) if key in case["saving"]}, reference)
    saving.write(state, case["saving"], model_folder, case["family"])


def near(found: float, right: float) -> bool:
    return abs(found - right) <= CLOSE * max(1.0, abs(right))


def check(case: dict, folder: Path, programs: Programs) -> None:
    """Raises `Wrong`, `Refused` or `Invalid`; returns if all results are equal."""
    task, kind = case["ask"]["task"], TASKS[case["ask"]["task"]]
    try:
        build(case, folder, kind)
        adapters.build(case, folder, kind, folder / "model")
        where = folder / "reference"
        model, told = kind.from_pretrained(
            where, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        if told["missing_keys"]:
            raise ValueError(f"missing weights: {told['missing_keys']}")
        model = adapters.adapted(case, folder, model).eval()
        tokenizer = AutoTokenizer.from_pretrained(adapters.tokenizer_folder(case, folder))
        right = {"fill-mask": masked, "classify": labels, "tokens": words, "answer": answers}[task](
            model, tokenizer, case
        )
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    asked = case["ask"]
    place, named, beside = adapters.arguments(case, folder, folder / "model")
    arguments = ["--task", task, *named]
    if task != "tokens":  # each word has one label
        arguments += ["--top-k", "1000" if task != "answer" else "3"]
    if "batch_size" in asked:
        arguments += ["--batch-size", str(asked["batch_size"])]
    if "max_length" in asked:
        arguments += ["--max-length", str(asked["max_length"])]
    if "question" in asked:
        arguments += ["--question", asked["question"]]
    found, said = programs.ask("bert", *arguments, *asked["texts"], model=place, beside=beside)
    {"fill-mask": compare_masked, "classify": compare_labels, "tokens": compare_words, "answer": compare_answers}[task](
        found, right, said
    )


def inputs(model, tokenizer, *texts: str):
    encoded = tokenizer(*texts, return_tensors="pt", truncation=False)
    encoded.pop("overflow_to_sample_mapping", None)
    longest = model.config.max_position_embeddings - (
        model.config.pad_token_id + 1 if model.config.model_type == "roberta" else 0
    )
    if encoded["input_ids"].shape[1] > min(longest, tokenizer.model_max_length):
        raise ValueError("the text is too long")
    return encoded


def masked(model, tokenizer, case) -> list:
    found = []
    for text in case["ask"]["texts"]:
        encoded = inputs(model, tokenizer, text)
        with torch.no_grad():
            scores = model(**encoded).logits[0].softmax(-1)
        ids = encoded["input_ids"][0].tolist()
        found.append({i: scores[i].tolist() for i, token in enumerate(ids) if token == tokenizer.mask_token_id})
        if not found[-1]:
            raise ValueError("no mask")
    return found


def compare_masked(found, right, said) -> None:
    for mine, own in zip(found["texts"], right, strict=True):
        places = {mask["position"]: mask["candidates"] for mask in mine["masks"]}
        if set(places) != set(own):
            raise Wrong(f"positions of masks are {sorted(places)}; right is {sorted(own)}")
        for position, scores in own.items():
            given = {one["token"]: one["score"] for one in places[position]}
            far = [
                (token, given.get(token), score)
                for token, score in enumerate(scores)
                if not near(given.get(token, -1), score)
            ]
            if far:
                raise Wrong(f"score of token, found and right: {far[:4]}, {len(far)} of {len(scores)} differ")


def labels(model, tokenizer, case) -> list:
    pipe = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None, device="cpu")
    found = []
    for text in case["ask"]["texts"]:
        parts = text.split("\t", 1)
        limit = {"max_length": case["ask"]["max_length"], "truncation": True} if "max_length" in case["ask"] else {}
        if not limit:
            inputs(model, tokenizer, *parts)
        query = {"text": parts[0], "text_pair": parts[1]} if len(parts) > 1 else [parts[0]]
        one = pipe(query, **limit)
        one = one[0] if isinstance(one[0], list) else one
        found.append({label["label"]: label["score"] for label in one})
    return found


def compare_labels(found, right, said) -> None:
    for mine, own in zip(found["texts"], right, strict=True):
        given = {one["label"]: one["score"] for one in mine["labels"]}
        if set(given) != set(own) or not all(near(given[name], own[name]) for name in own):
            raise Wrong(f"labels are {given}; right is {own}")


def words(model, tokenizer, case) -> list:
    pipe = pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first", device="cpu"
    )
    found = []
    for text in case["ask"]["texts"]:
        encoded = inputs(model, tokenizer, text)
        with torch.no_grad():
            best = model(**encoded).logits[0].topk(2).values
        if (best[:, 0] - best[:, 1]).min() < 1e-3:
            raise ValueError("near tie")
        if model.config.model_type == "roberta":
            found.append(by_words(model, tokenizer, text))
        else:
            found.append([(one["entity_group"], one["start"], one["end"], float(one["score"])) for one in pipe(text)])
    return found


def by_words(model, tokenizer, text: str) -> list:
    """As the pipeline, but with the tokenizer's words, whose first tokens are labelled in training (run_ner.py).

    For RoBERTa the pipeline splits words at spaces, and makes an empty entity of a space that is a token.
    """
    encoded = tokenizer(text, return_tensors="pt")
    whole = encoded[0]
    with torch.no_grad():
        scores = model(**encoded).logits[0].softmax(-1)
    parts, last = [], None
    for i, (word, (start, end)) in enumerate(zip(whole.word_ids, whole.offsets)):
        if word is None or whole.special_tokens_mask[i]:
            continue
        if word == last:
            parts[-1]["end"] = end
            continue
        last = word
        best = int(scores[i].argmax())
        parts.append(dict(entity=model.config.id2label[best], score=scores[i, best].item(), start=start, end=end))
    groups = []
    # A space before an added token is a word without characters.
    for part in (part for part in parts if part["start"] < part["end"]):
        begin, _, name = (
            part["entity"].rpartition("-") if part["entity"][:2] in ("B-", "I-") else ("I", "", part["entity"])
        )
        if groups and groups[-1][0] == name and begin != "B":
            groups[-1][1].append(part)
        else:
            groups.append((name, [part]))
    mean = lambda group: sum(part["score"] for part in group) / len(group)
    return [(name, group[0]["start"], group[-1]["end"], mean(group)) for name, group in groups if name != "O"]


def compare_words(found, right, said) -> None:
    for mine, own in zip(found["texts"], right, strict=True):
        text = mine["text"]
        chars = lambda at: len(text.encode()[:at].decode(errors="replace"))
        given = [(one["label"], chars(one["start"]), chars(one["end"]), one["score"]) for one in mine["entities"]]
        if [one[:3] for one in given] != [one[:3] for one in own] or not all(
            near(a[3], b[3]) for a, b in zip(given, own)
        ):
            raise Wrong(f"entities are {given}; right is {own}")


def answers(model, tokenizer, case) -> list:
    """Returns the three most likely spans of one window, of whole words, as transformers 4.57's pipeline."""
    import numpy as np

    found = []
    for text in case["ask"]["texts"]:
        encoded = inputs(model, tokenizer, case["ask"]["question"], text)
        whole = tokenizer(case["ask"]["question"], text, return_offsets_mapping=True)[0]
        with torch.no_grad():
            made = model(**encoded)
        desired = np.array([s == 1 for s in whole.sequence_ids])

        def normalised(logits):
            # Every begin token counts, also within a text.
            allowed = desired | (np.array(whole.ids) == tokenizer.cls_token_id)
            x = np.where(allowed, logits[0].numpy().astype(np.float64), -10000.0)
            x = np.exp(x - x.max())
            return x / x.sum()

        start, end = normalised(made.start_logits), normalised(made.end_logits)
        start[0] = end[0] = 0.0
        spans = np.tril(np.triu(np.outer(start, end)), 14)
        merged = {}
        for s, e in zip(*np.unravel_index(np.argsort(-spans.flatten(), kind="stable")[: 3 * 2 + 10], spans.shape)):
            if desired[s] and desired[e] and spans[s, e] > 0:
                first = whole.word_to_chars(whole.token_to_word(int(s)), 1)[0]
                last = whole.word_to_chars(whole.token_to_word(int(e)), 1)[1]
                known = [key for key in merged if key.lower() == text[first:last].lower()]
                key = known[0] if known else text[first:last]
                merged[key] = merged.get(key, 0.0) + spans[s, e]
        found.append(sorted(merged.items(), key=lambda one: -one[1])[:3])
    return found


def compare_answers(found, right, said) -> None:
    for mine, own in zip(found["texts"], right, strict=True):
        given = [(one["answer"], one["score"]) for one in mine["answers"]]
        same = len(given) == len(own) and all(near(a[1], b[1]) for a, b in zip(given, own))
        ties = any(abs(a[1] - b[1]) < 1e-4 for a, b in zip(own, own[1:]))
        if not same or not (ties or [a[0] for a in given] == [a[0] for a in own]):
            raise Wrong(f"answers are {given}; right is {own}")


transformers.utils.logging.set_verbosity_error()
