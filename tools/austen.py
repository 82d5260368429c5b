"""Extracts the training text of models/assets/gpt2-austen: Jane Austen's six novels, which are in the public domain.

The text comes from the Debian package r-cran-janeaustenr (`apt-get download r-cran-janeaustenr`). Lines are joined to
paragraphs. The last twentieth of each novel, split at a paragraph, is held out.

    python tools/austen.py r-cran-janeaustenr_*.deb OUTPUT_DIRECTORY        (needs: pip install rdata)

writes OUTPUT_DIRECTORY/train/<novel>.txt and OUTPUT_DIRECTORY/held_out.txt.
"""

import gzip
import lzma
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

import rdata

NOVELS = ["sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey", "persuasion"]
HELD_OUT = 0.05


def r_object(data):
    return rdata.conversion.convert(rdata.parser.parse_data(data, extension=".rds"))


def novels(package):
    """Reads the lines of every novel from R's lazy-load database: an index of (offset, length), and compressed objects."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["dpkg", "-x", package, directory], check=True)
        base = pathlib.Path(directory, "usr/lib/R/site-library/janeaustenr/data/Rdata")
        index = r_object(gzip.decompress(base.with_suffix(".rdx").read_bytes()))["variables"]
        database = base.with_suffix(".rdb").read_bytes()
    for name in NOVELS:
        offset, length = (int(x) for x in index[name])
        block = database[offset : offset + length]
        (size,) = struct.unpack(">I", block[:4])
        if block[4:5] == b"Z":
            filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
            data = lzma.decompress(block[5:], format=lzma.FORMAT_RAW, filters=filters)
        else:
            data = zlib.decompress(block[4:])
        assert len(data) == size, name
        yield name, [str(line) for line in r_object(data)]


def paragraphs(lines):
    """Joins lines to paragraphs; chapter headings stay separate paragraphs."""
    for paragraph in re.split(r"\n\s*\n", "\n".join(line.rstrip() for line in lines)):
        text = re.sub(r"\s+", " ", paragraph).strip()
        if text:
            yield text


def main(package, output):
    output = pathlib.Path(output)
    (output / "train").mkdir(parents=True, exist_ok=True)
    held_out = []
    for name, lines in novels(package):
        text = list(paragraphs(lines))
        total, kept, size = sum(map(len, text)), [], 0
        for paragraph in text:
            if size < (1 - HELD_OUT) * total:
                kept.append(paragraph)
            else:
                held_out.append(paragraph)
            size += len(paragraph)
        (output / "train" / f"{name}.txt").write_text("\n\n".join(kept) + "\n")
        print(f"{name}: {total} characters, {size - sum(map(len, kept))} held out")
    (output / "held_out.txt").write_text("\n\n".join(held_out) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
