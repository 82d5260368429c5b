#!/usr/bin/env python3
"""A preprocessor of mdBook: links from docs/ to other folders of the repository.

They resolve on the repository's web page, and not in the book. With `repository` in book.toml they lead there; without it their
text stays, without a link. Images of other folders are refused.
"""

import json
import sys
from pathlib import PurePosixPath

from links import FENCE, INLINE, SCHEME, resolve


def outside(page, target):
    """The path from the root of a target that is not in docs/, with its anchor; else None."""
    path, hash_sign, anchor = target.partition("#")
    if not path or SCHEME.match(target):
        return None
    place = resolve(page, path)
    if place is None or PurePosixPath(place).parts[:1] == ("docs",):
        return None
    return place + hash_sign + anchor


def prose(text, change):
    """The text with its parts outside of fenced blocks changed."""
    parts, lines, fence = [], [], None
    for line in text.splitlines(keepends=True):
        found = FENCE.match(line.rstrip("\n"))
        if fence is None and found:
            parts.append(change("".join(lines)))
            lines, fence = [line], found[1]
        elif fence and found and found[1].startswith(fence) and not found[2].strip():
            parts.append("".join(lines) + line)
            lines, fence = [], None
        else:
            lines.append(line)
    parts.append(change("".join(lines)) if fence is None else "".join(lines))
    return "".join(parts)


def rewrite(page, text, repository):
    """A page with its links to other folders replaced."""

    def replace(found):
        place = outside(page, found[1])
        if place is None:
            return found[0]
        if found[0].startswith("!"):
            sys.exit(f"{page}: the image {place} is not in docs/, and so not in the book")
        words = found[0][1 : found[0].rindex("](")]
        return f"[{words}]({repository}/{place})" if repository else words

    return prose(text, lambda part: INLINE.sub(replace, part))


def walk(items, repository):
    """Rewrites chapters and the chapters within them."""
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            page = f"docs/{chapter.get('source_path') or chapter.get('path')}"
            chapter["content"] = rewrite(page, chapter["content"], repository)
            walk(chapter["sub_items"], repository)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    settings = context["config"].get("preprocessor", {}).get("outside", {})
    walk(book.get("items") or book.get("sections") or [], settings.get("repository", "").rstrip("/"))
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
