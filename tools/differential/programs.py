"""Runs grove's programs and interprets their output."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Timeout of a program in seconds.
LIMIT = 60
# For a tiny model, one thread is faster than several.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "RAYON_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
# Keys that are also common words in messages.
COMMON = {
    "model",
    "size",
    "type",
    "name",
    "path",
    "text",
    "content",
    "special",
    "user",
    "version",
    "id",
    "shape",
    "data",
    "no",
    "not",
    "so",
}


class Wrong(Exception):
    """grove's answer differs from the reference's, or grove gives no answer."""


class Refused(Exception):
    """grove rejects a case. `key` is the key or the file that the message names."""

    def __init__(self, key: str, sentence: str):
        super().__init__(sentence)
        self.key, self.sentence = key, sentence


class Invalid(Exception):
    """The reference library rejects the case, or the case has no unique correct answer."""


@dataclass
class Programs:
    """Folder of grove's programs."""

    folder: Path

    def ask(
        self, program: str, *arguments: str, model: Path, options: tuple = (), beside: tuple = (), stdin: str = ""
    ) -> tuple[dict, str]:
        """Returns the JSON output and the standard error of an example, or of a command of grove. `options` are further words that an error message
        may name, besides the keys of the model's files and of those in the folders `beside`."""
        name, *words = program.split()
        folder = self.folder.parent if name == "grove" else self.folder
        command = [str(folder / name), *words, "--model", str(model), "--json", *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=LIMIT, input=stdin,
                env=os.environ | ENVIRONMENT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Wrong(f"hangs: {command[0]} has not ended after {LIMIT} s")
        error = done.stderr.strip()
        if done.returncode == 0:
            try:
                return json.loads(done.stdout), error
            except ValueError:
                raise Wrong(f"no JSON: {done.stdout[:300]!r}")
        if done.returncode not in (1, 2) or "panicked" in error:
            raise Wrong(f"crashes with exit status {done.returncode}: {error[-600:]}")
        key = named(error, model, options, beside)
        if key is None:
            raise Wrong(f"a refusal that names no key: {error[-600:]}")
        raise Refused(key, error)


def keys_of(value) -> set[str]:
    """Returns all keys of nested objects."""
    if isinstance(value, dict):
        return set(value) | set().union(*(keys_of(part) for part in value.values()))
    if isinstance(value, list):
        return set().union(set(), *(keys_of(part) for part in value))
    return set()


def named(sentence: str, model: Path, options: tuple, beside: tuple = ()) -> str | None:
    """Returns the key of the model's files, or else the file, that a message names."""
    folders = [place if place.is_dir() else place.parent for place in (model, *beside)]
    keys = set(options)
    for file in (file for folder in folders for file in folder.rglob("*.json")):
        if file.stat().st_size < 1 << 20 and not file.name.startswith(("vocab", "tokenizer.json")):
            found = json.loads(file.read_text())
            # The inner keys of an adapter are names of modules.
            keys |= set(found) if file.name == "adapter_config.json" else keys_of(found)
    # Remarks precede the error.
    sentence = sentence[sentence.rfind("error: ") :]
    for folder in folders:
        sentence = sentence.replace(str(folder), "")
    quoted = [key for key in re.findall(r"`([\w.]+)`", sentence) if key in keys or key.split(".")[-1] in keys]
    if quoted:
        return quoted[0]
    words = re.findall(r"[A-Za-z_][\w]*", sentence)
    found = [word for word in words if word in keys and word not in COMMON]
    if found:
        return max(found, key=lambda word: ("_" in word, len(word)))
    files = [file.name for folder in folders for file in folder.rglob("*") if file.is_file() and file.name in sentence]
    if "unexpected in the checkpoint" in sentence and "missing from" not in sentence:
        return "tensor"
    # A weights file or a tokenizer file.
    if files and not all(name.endswith(".json") for name in files):
        return max(files, key=len)
    return None
