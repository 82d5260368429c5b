"""Tokenizers of the kinds that models are published with, trained on a small text, and their files."""

import functools
import io
import json
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from draws import Draws

CORPUS = """The ferry left at noon with 12 people and 3 dogs on board, and the captain's daughter waved.
It's cold in the harbour, isn't it? They'll warm themselves at the stove before they go home.
A grove is smaller than a forest: you can see the other side, and yet you may still lose your hat in it.
def walk(path, steps=10):
    for step in range(steps):
        return step, path[:step]
Ein Café am Hafen, naïve résumé, Ångström; größer, Straße, früh um fünf.
Мельник спит, река шумит, и старая лодка качается у моста.
東京 と 中文 川は橋の下を流れる 🌳🌲
"""
WORDS = [*CORPUS.split(), "\n", "\n\n", "  ", "\t", "HELLO", "don't", "x1y22", "e\u0301", "日本", "🌳", "٣", "{{", "<s>", "</s>", "[MASK]", "'s"]  # fmt: skip
GPT2 = ["<|endoftext|>"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEMPLATES = {
    "chatml": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "plain": "{{ bos_token }}{%- for m in messages %}\n    {{- m.role | upper ~ ': ' ~ m.content | trim ~ '\n' }}\n{%- endfor %}"
    "{%- if add_generation_prompt %}\n{{- 'ASSISTANT:' }}{%- endif %}\n",
    "system": "{%- set ns = namespace(system='') -%}{%- if messages[0]['role'] == 'system' -%}{%- set ns.system = messages[0]['content'] -%}"
    "{%- set messages = messages[1:] -%}{%- endif -%}{%- for m in messages -%}{%- if loop.first and ns.system -%}"
    "{{ '<<' + ns.system.strip() + '>> ' }}{%- endif -%}{{ '[' + m['role'] + '] ' + m['content'].strip() + (' ' if not loop.last else '') }}"
    "{%- if m.role == 'assistant' -%}{{ eos_token }}{%- endif -%}{%- endfor -%}",
    "tools": "{%- if tools is defined and tools %}{{ tools | tojson }}{%- endif %}{%- for m in messages if m.content is string %}"
    "{{- '#' ~ loop.index ~ ' ' }}{{ m.role.title() }}={{ m.content | replace('\n', ' ') | length }}:{{ m.content }}{% endfor %}"
    "{{ '' if not add_generation_prompt else ' >' }}",
    "format": "{% for m in messages %}{{- '#%d ' | format(loop.index) }}{{ m.content }}{% endfor %}",
    "blocks": "{%- macro said(m) -%}{{ m.role.capitalize() + '> ' + m.content.rstrip() }}{%- endmacro -%}{%- set last = messages | selectattr('role', 'equalto', 'user') | list | last -%}"
    "{%- for m in messages -%}{%- if m is not mapping or 'content' not in m -%}{%- continue -%}{%- endif -%}{{ said(m) }}{{ '\n' if not loop.last }}{%- endfor -%}"
    "{{ '\n' ~ last['content'][:3] ~ (messages | length) ~ messages[-1]['role'].startswith('us') }}{{ '\nBot> ' if add_generation_prompt }}",
    "date": "{%- if date_string is not defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{{- bos_token }}{{- 'Today: ' + date_string + '\n' }}"
    "{%- for message in messages %}{%- if message['role'] not in ['user', 'assistant', 'system'] %}{{ raise_exception('no') }}{%- endif %}"
    "{{- '<|' ~ message.role ~ '|>' }}{{- message['content'].split(' ')[0] | tojson }}{{- message.content.split('x')[-1].lstrip().replace('a', 'A') }}{%- endfor %}{{- eos_token }}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}"
    "{{ m.role[0] }}|{{ m.content }}\n{% endif %}{% endfor %}{{ strftime_now is defined }}",
}  # fmt: skip


@functools.cache
def byte_level(special: tuple[str, ...], size: int = 330) -> str:
    """Returns the tokenizer.json of a byte-level BPE with these special tokens first."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False, initial_alphabet=alphabet
    )
    t.train_from_iterator([CORPUS] * 3, trainer)
    return t.to_str()


@functools.cache
def pieces() -> tuple[str, ...]:
    """Returns a WordPiece vocabulary: special tokens, letters at the start and within words, and words with and without
    capitals."""
    letters = sorted(set(CORPUS) - set(" \n🌳🌲"))
    words = [word.strip(".,;:?()[]") for word in CORPUS.split()]
    parts = [
        *letters,
        *("##" + letter for letter in letters),
        *words[::2],
        *(word.lower() for word in words[::3]),
        "##ing",
        "##er",
    ]
    return tuple(dict.fromkeys([*BERT, *parts]))


@functools.cache
def sentencepieces(kind: str) -> bytes:
    """Returns a SentencePiece model like LLaMA's, of BPE or unigram type."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, hard_vocab_limit=False, minloglevel=2, num_threads=1,
        model_type=kind, vocab_size=420, byte_fallback=True, character_coverage=0.99, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
        user_defined_symbols=["<sep>"],
    )  # fmt: skip
    return model.getvalue()


def text(draws: Draws, words: int) -> str:
    """Draws a random text of words, spaces, line feeds and symbols."""
    parts = [draws.choice(WORDS) for _ in range(words)]
    return "".join(part if draws.chance(0.1) or part.isspace() else " " + part for part in parts)[
        draws.choice([0, 1]) :
    ]


def entry(content: str, **more) -> dict:
    """Returns an added token in the form of tokenizer_config.json."""
    return (
        {"__type": "AddedToken"}
        | dict(content=content, lstrip=False, rstrip=False, normalized=False, single_word=False, special=True)
        | more
    )


def splitting(name: str):
    """Returns pre-tokenizers of published byte-level tokenizers."""
    if name == "digits":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    numbers = {"llama3": r"\p{N}{1,3}", "qwen2": r"\p{N}"}[name]
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + numbers
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


# Keys of every tokenizer_config.json.
def general(draws: Draws, special: list[str]) -> dict:
    return draws.some(
        {
            "model_max_length": lambda: draws.choice([1024, 10**30, 64]),
            "padding_side": lambda: draws.choice(["left", "right"]),
            "clean_up_tokenization_spaces": lambda: draws.choice([True, False]),
            "pad_token": lambda: draws.choice(["[PAD]", special[0], entry("<pad>", lstrip=True)]),
            "unk_token": lambda: special[0],
            "additional_special_tokens": lambda: draws.choice([["<|user|>", "<|bot|>"], [], [entry("<|user|>", rstrip=True)]]),
            "errors": lambda: draws.mostly("replace", ["strict"], 0.1),
            "name_or_path": lambda: "some/model",
            "use_fast": lambda: True,
            "model_input_names": lambda: ["input_ids", "attention_mask"],
        },
        0.12,
    ) | draws.rare(
        {
            "split_special_tokens": lambda: draws.mostly(False, [True], 0.3),
            "extra_special_tokens": lambda: draws.choice([["<|user|>"], {"user_token": "<|user|>"}]),
            "truncation_side": lambda: draws.choice(["left", "right"]),
            # Written with the next free id.
            "added_tokens_decoder": lambda: {"next": entry("<|late|>", special=draws.chance(0.5))},
        },
        0.15,
    )  # fmt: skip


def of_decoder(draws: Draws, family: str) -> dict:
    """Draws the tokenizer of a decoder: `kind`, `form` (the files) and the settings `config`, `map` and `added`."""
    if family in ("gpt2", "gpt_neo"):
        kind = "bytes"
    elif family in ("qwen2", "qwen3"):
        kind = "qwen2"
    else:
        kind = draws.choice(["bpe", "bpe", "unigram", "llama3", "digits"])
    drawn = {"kind": kind}
    if kind in ("bpe", "unigram"):
        drawn["form"] = "json" if kind == "unigram" else draws.choice(["json", "model", "model"])
        classes = [] if kind == "unigram" else ["LlamaTokenizer", "LlamaTokenizerFast"]
        if drawn["form"] == "json":
            classes.append("PreTrainedTokenizerFast")
        special = ["<s>", "</s>"]
    else:
        drawn["form"] = draws.choice(["json", "pair"]) if kind in ("bytes", "qwen2") else "json"
        special = ["<|endoftext|>"]
        classes = {
            "bytes": ["GPT2Tokenizer", "GPT2TokenizerFast"],
            "qwen2": ["Qwen2Tokenizer", "Qwen2TokenizerFast"],
        }.get(kind, [])
        if drawn["form"] == "json":
            classes = [*classes, "PreTrainedTokenizerFast"]
    config = general(draws, special)
    if draws.chance(0.85):
        config["tokenizer_class"] = draws.choice(classes)
    if draws.chance(0.8):
        config |= {"bos_token": special[0], "eos_token": draws.choice([special[-1], entry(special[-1])])}
    config |= draws.some(
        {
            "add_prefix_space": lambda: draws.choice([True, False]),
            "add_bos_token": lambda: draws.choice([True, False]),
            "add_eos_token": lambda: draws.mostly(False, [True], 0.5),
        },
        0.15,
    )
    if kind in ("bpe", "unigram"):
        config |= draws.some({"legacy": lambda: draws.choice([True, False, None]), "sp_model_kwargs": lambda: {}}, 0.4)
        config |= draws.some(
            {"spaces_between_special_tokens": lambda: False, "use_default_system_prompt": lambda: False}, 0.2
        )
        if drawn["form"] == "json" and draws.chance(0.3):
            drawn["older"] = True
    if draws.chance(0.1):
        drawn["added"] = {"<|user|>": None, "word": None}
    if draws.chance(0.15):
        drawn["map"] = draws.some(
            {"eos_token": lambda: special[-1], "pad_token": lambda: entry("<pad>"), "bos_token": lambda: special[0]},
            0.6,
        )
    drawn["config"] = config
    return drawn


def of_encoder(draws: Draws, family: str) -> dict:
    """Draws the tokenizer of an encoder."""
    if family == "roberta":
        drawn = {"kind": "roberta", "form": draws.choice(["json", "pair"])}
        classes = ["RobertaTokenizer", "RobertaTokenizerFast"]
        own = {
            "add_prefix_space": lambda: draws.choice([True, False]),
            "trim_offsets": lambda: draws.choice([True, False]),
        }
    else:
        drawn = {"kind": "pieces", "form": draws.choice(["json", "text"])}
        name = "DistilBert" if family == "distilbert" and draws.chance(0.6) else "Bert"
        classes = [f"{name}Tokenizer", f"{name}TokenizerFast"]
        own = {
            "do_lower_case": lambda: draws.choice([True, False]),
            "strip_accents": lambda: draws.choice([True, False, None]),
            "tokenize_chinese_chars": lambda: draws.choice([True, False]),
            "do_basic_tokenize": lambda: True,
            "never_split": lambda: None,
        }
    if drawn["form"] == "json":
        drawn["lower"] = draws.chance(0.6)
        if draws.chance(0.2):
            drawn["limits"] = draws.choice([6, 20])
        classes.append("PreTrainedTokenizerFast")
    special = ROBERTA if family == "roberta" else BERT
    names = ["bos_token", "pad_token", "eos_token", "unk_token", "mask_token"] if family == "roberta" else [
        "pad_token", "unk_token", "cls_token", "sep_token", "mask_token"]  # fmt: skip
    config = draws.some(own, 0.35)
    if draws.chance(0.85):
        config["tokenizer_class"] = draws.choice(classes)
    if config.get("tokenizer_class") == "PreTrainedTokenizerFast" or draws.chance(0.7):
        config |= dict(zip(names, special))
        if family == "roberta":
            config |= {"cls_token": "<s>", "sep_token": "</s>"}
    config |= draws.some(
        {
            "model_max_length": lambda: draws.choice([16, 64, 10**30]),
            "clean_up_tokenization_spaces": lambda: draws.choice([True, False]),
            "padding_side": lambda: "right",
        },
        0.2,
    )
    config |= draws.rare(
        {
            "additional_special_tokens": lambda: ["[E1]"],
            "truncation_side": lambda: draws.choice(["left", "right"]),
            "model_input_names": lambda: ["input_ids", "attention_mask"],
            "split_special_tokens": lambda: False,
            "errors": lambda: "replace",
        },
        0.3,
    )
    if draws.chance(0.1):
        drawn["added"] = {"[E1]": None, "word": None}
    drawn["config"] = config
    return drawn


def write(drawn: dict, folder: Path) -> int:
    """Writes the files of a tokenizer. Returns the vocabulary size that a model needs."""
    kind, form = drawn["kind"], drawn.get("form", "json")
    if kind in ("bpe", "unigram"):
        if form == "model":
            # Version 5 adds no <s> before texts if this is missing, in contrast to its documentation and version 4.
            drawn = drawn | {"config": {"add_bos_token": True} | drawn.get("config", {})}
        size = write_pieces(kind, form, folder, drawn.get("older", False))
    elif kind == "pieces":
        if "Pre" in drawn.get("config", {}).get("tokenizer_class", ""):
            # Version 4 returns token types, version 5 does not.
            names = ["input_ids", "token_type_ids", "attention_mask"]
            drawn = drawn | {"config": {"model_input_names": names} | drawn["config"]}
        size = write_words(form, drawn.get("lower", True), folder)
    else:
        size = write_bytes(kind, form, folder)
    if "limits" in drawn and form == "json":
        # Published files often contain the settings of an earlier call, which have no effect.
        t = Tokenizer.from_file(str(folder / "tokenizer.json"))
        t.enable_truncation(drawn["limits"])
        t.enable_padding(length=drawn["limits"])
        t.save(str(folder / "tokenizer.json"))
    if "config" in drawn:
        drawn = drawn | {"config": dict(drawn["config"])}
        late = drawn["config"].get("added_tokens_decoder", {}).get("next")
        if late:
            drawn["config"]["added_tokens_decoder"] = {str(size): late}
        (folder / "tokenizer_config.json").write_text(json.dumps(drawn["config"]))
    if "map" in drawn:
        (folder / "special_tokens_map.json").write_text(json.dumps(drawn["map"]))
    if "added" in drawn:
        (folder / "added_tokens.json").write_text(
            json.dumps({token: size + i for i, token in enumerate(drawn["added"])})
        )
    if "template_file" in drawn:
        (folder / "chat_template.jinja").write_text(drawn["template_file"])
    return size


def write_bytes(kind: str, form: str, folder: Path) -> int:
    special = tuple(ROBERTA if kind == "roberta" else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t = Tokenizer.from_str(byte_level(special))
    if form == "pair":
        t.model.save(str(folder))
        return t.get_vocab_size()
    if kind in ("llama3", "qwen2", "digits"):
        t.pre_tokenizer = splitting(kind)
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    if kind == "llama3":
        t.post_processor = processors.TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    if kind == "roberta":
        t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    t.save(str(folder / "tokenizer.json"))
    return t.get_vocab_size()


def write_words(form: str, lower: bool, folder: Path) -> int:
    words = pieces()
    if form == "text":
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        return len(words)
    t = Tokenizer(models.WordPiece(vocab={piece: i for i, piece in enumerate(words)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.add_special_tokens([AddedToken(token, special=True) for token in BERT])
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.save(str(folder / "tokenizer.json"))
    return len(words)


def write_pieces(kind: str, form: str, folder: Path, older: bool) -> int:
    """Writes a SentencePiece tokenizer. `older` selects the form of tokenizer.json in transformers before 4.40, without
    a pre-tokenizer."""
    model = sentencepieces(kind)
    reader = sentencepiece.SentencePieceProcessor(model_proto=model)
    if form == "model":
        (folder / "tokenizer.model").write_bytes(model)
        return reader.vocab_size()
    tokens = [reader.id_to_piece(i) for i in range(reader.vocab_size())]
    if kind == "unigram":
        t = Tokenizer(
            models.Unigram([(token, reader.get_score(i)) for i, token in enumerate(tokens)], 0, byte_fallback=True)
        )
    else:
        t = Tokenizer(as_merges(reader, tokens))
    if older:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    t.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ["<unk>", "<s>", "</s>"]])
    t.add_tokens([AddedToken("<sep>", normalized=False)])
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", special_tokens=[("<s>", 1)])
    t.save(str(folder / "tokenizer.json"))
    return len(tokens)


def as_merges(reader, tokens: list[str]):
    """Converts the BPE of a SentencePiece model to merges, as transformers does."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        pairs.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [(reader.get_score(i), pair) for pair in pairs]
    merges.sort(key=lambda merge: merge[0], reverse=True)
    return models.BPE(
        vocab=vocabulary, merges=[pair for _, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
