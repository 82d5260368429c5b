"""Cases of GPT-2, GPT-Neo, LLaMA, Mistral, Qwen2 and Qwen3: losses of texts, greedy continuations, chats."""

import json
import re
import shutil
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaTokenizer

import adapters
import ggml
import saving
import vocabularies
from decoder_draws import draw  # noqa: F401
from programs import Invalid, Programs, Wrong

FAMILIES = ["gpt2", "gpt_neo", "llama", "mistral", "qwen2", "qwen3"]
# Relative tolerances of losses, and of logits that count as equal where two continuations diverge.
CLOSE, NEAR_TIE = 1e-4, 2e-4
# The same for quantized weights, which grove multiplies with quantized activations.
CLOSE_QUANTIZED, NEAR_TIE_QUANTIZED = 2e-2, 5e-2

# Unicode white space; Python's strip removes more characters.
SPACES = " \t\n\v\f\r\x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


# ------------------------------------------------------------------------------------------------------------------- building


def configuration(case: dict, vocabulary: int) -> dict:
    """Returns the config.json."""
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
        # The defaults of Mistral and Qwen2 do not fit few heads.
        config.setdefault("num_key_value_heads", sizes["heads"])
        half = (config.get("head_dim") or sizes["width"] // sizes["heads"]) // 2
        for key in ("rope_scaling", "rope_parameters"):
            if "short_factor" in (config.get(key) or {}):
                half_used = int(half * config[key].get("partial_rotary_factor", 1.0))
                config[key] = config[key] | {name: [scale + 0.25 * i for i in range(half_used)]
                                             for name, scale in (("short_factor", 1.0), ("long_factor", 1.5)) if name in config[key]}  # fmt: skip
    return config


def randomise(model, seed: int) -> None:
    """Randomises parameters on a scale for which logits spread: no bias is zero, no norm weight is one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(
                    noise
                    * (0.6 if "wpe" in name or "wte" in name or "embed" in name else 1.2 / parameter.shape[-1] ** 0.5)
                )


def build(case: dict, folder: Path) -> None:
    """Writes `model`, the files for grove, and `reference`, the same model in a form that transformers reads."""
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
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith((".attn.bias", ".attention.bias", "masked_bias"))
    }
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
        self.model = adapters.adapted(case, folder, self.model).eval()
        # Without end tokens in generation_config.json, transformers uses none, and grove those of the model's
        # configuration.
        own = self.model.generation_config
        if own.eos_token_id is None:
            own.eos_token_id = self.model.config.eos_token_id
        self.tokenizer = None
        if "tokenizer" in case:
            # Version 5 does not use a SentencePiece class for Mistral, or for files that name no class.
            reader = LlamaTokenizer if case["tokenizer"].get("form") == "model" else AutoTokenizer
            self.tokenizer = reader.from_pretrained(adapters.tokenizer_folder(case, folder))
        self.plain = None
        if self.tokenizer is not None and (where / "tokenizer.json").exists():
            from tokenizers import Tokenizer

            self.plain = Tokenizer.from_file(str(where / "tokenizer.json"))

    def logits(self, ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0]

    def generate(self, ids: list[int], **more) -> tuple[list[int], list[torch.Tensor]]:
        """Returns a continuation and the processed scores of each step."""
        x = torch.tensor([ids])
        with torch.no_grad():
            out = self.model.generate(
                x, attention_mask=torch.ones_like(x), return_dict_in_generate=True, output_scores=True, **more
            )
        return out.sequences[0, len(ids) :].tolist(), [scores[0] for scores in out.scores]


def check(case: dict, folder: Path, programs: Programs) -> None:
    """Raises `Wrong`, `Refused` or `Invalid`; returns if all results are equal."""
    asked = case["ask"]
    try:
        build(case, folder)
        model = folder / "model"
        if "gguf" in case["saving"]:
            model = model / "model.gguf"
        elif "file" in asked and len(files := [*model.glob("*.safetensors"), *model.glob("*.bin")]) == 1:
            model = files[0]
        adapters.build(case, folder, AutoModelForCausalLM, model)
        reference = Reference(case, folder)
        reference.logits([1, 2, 3])
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    program = {"gpt2": "gpt2", "gpt_neo": "gpt_neo"}.get(case["family"], "llama")
    Comparison(case, reference, programs, program, adapters.arguments(case, folder, model), asked).run()


class Comparison:
    def __init__(self, case: dict, reference: Reference, programs: Programs, program: str, model: tuple, asked: dict):
        self.case, self.reference, self.programs = case, reference, programs
        self.program, self.asked = program, asked
        self.model, self.more, self.beside = model
        self.generation = case.get("generation", {})
        self.beyond = case["sizes"].get("beyond", False)
        quantized = case["saving"].get("gguf", "").startswith("Q")
        self.close, self.near = (CLOSE_QUANTIZED, NEAR_TIE_QUANTIZED) if quantized else (CLOSE, NEAR_TIE)

    def grove(self, *arguments: str, stdin: str = "") -> tuple[dict, str]:
        arguments = (*self.more, *arguments, "--dtype", "f32")
        return self.programs.ask(self.program, *arguments, model=self.model, beside=self.beside, stdin=stdin)

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
        """Returns the tokens of the prompt."""
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
            # transformers 4 and the file itself have other tokens than version 5, and grove reports it.
            own = "rebuilds this tokenizer" in said and self.reference.plain.encode(self.asked["prompt"]).ids
            if found["prompt_ids"] != own:
                raise Wrong(
                    f"prompt_ids are {found['prompt_ids']}; right is {right} ({self.reference.tokenizer.convert_ids_to_tokens(right)})"
                )
        return found["prompt_ids"]

    def loss(self, ids: list[int]) -> None:
        """Returns the mean loss of the prompt."""
        logits = self.reference.logits(ids).double()
        right = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
        found, _ = self.grove(*self.prompt(), "--score")
        if not abs(found["loss"] - right) <= self.close * max(1.0, abs(right)):
            raise Wrong(f"loss is {found['loss']}; right is {right}")

    def options(self) -> tuple[list[str], dict]:
        """Returns equivalent arguments for grove and settings for transformers."""
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
        """Compares the greedy continuation."""
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
                if set(self.generation) & {
                    "min_length",
                    "min_new_tokens",
                    "exponential_decay_length_penalty",
                    "bad_words_ids",
                }:
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
                if any(
                    (best - scores[step][token]).item() <= self.near * size
                    for token in candidates
                    if token != own and token < len(scores[step])
                ):
                    return
            # A stop string may end within a token, so compare texts.
            if not (
                stops
                and self.reference.tokenizer is not None
                and found == kept[: len(found)]
                and len(kept) - len(found) <= 1
            ):
                raise Wrong(f"generated_ids are {found}; right is {kept}{' and the end' if kept != right else ''}")
        if text is not None and self.reference.tokenizer is not None:
            expected = self.continuation(prompt, kept, stops)
            if not self.same_text(text, expected):
                raise Wrong(f"text is {text!r}; right is {expected!r}")

    def same_text(self, found: str, right: str) -> bool:
        """Streamed text cannot take back bytes that later ones make invalid: any characters may stand for the bytes that
        the whole text has as U+FFFD."""
        if found == right or "byte_fallback" not in repr(getattr(self.reference.tokenizer, "backend_tokenizer", "")):
            return found == right
        pattern = re.sub("\ufffd+", ".+", re.escape(right))
        return re.fullmatch(pattern, found, re.DOTALL) is not None

    def continuation(self, prompt: list[int], new: list[int], stops: list[str]) -> str:
        decode = lambda ids: self.reference.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        before, whole = decode(prompt), decode(prompt + new)
        text = whole[len(before) :] if whole.startswith(before) else decode(new)
        places = [text.find(stop) for stop in stops if stop in text]
        return text[: min(places)] if places else text

    def chat(self) -> None:
        """Compares one or two turns of a conversation."""
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
                if ties or "rebuilds this tokenizer" in note:
                    return
                raise Wrong(f"turn {turn + 1} is {found!r}; right is {expected!r} after {rendered!r}")
            messages.append({"role": "assistant", "content": found})


transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
