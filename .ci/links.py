#!/usr/bin/env python3
"""Checks the links of all Markdown files of the repository.

    .ci/links.py            prints FILE:LINE and the reason of each broken link, and exits with 1 if there is one

A relative link must lead to a file or folder of the repository, by its exact name, and its anchor to a heading of that
file, by GitHub's rules. Each page of docs/ must be in docs/SUMMARY.md. Links to other sites are not followed.
"""

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent

# [text](target "title"), ![text](target): the target may be in angle brackets, the text may hold one pair of brackets.
INLINE = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*(<[^<>]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
# The end of a link, whose text may begin on the line before.
END = re.compile(r"\]\(\s*(<[^<>]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
# [label]: target
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*(<[^<>]*>|\S+)")
ATTRIBUTE = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)\s*=\s*[\"']([^\"']*)[\"']", re.I)
ANCHOR = re.compile(r"<[a-z][a-z0-9]*\b[^>]*?\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']", re.I)
FENCE = re.compile(r"^ {0,3}(?:> ?)*\s*(`{3,}|~{3,})(.*)$")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
HEADING = re.compile(r"^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$")
SCHEME = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.I)


def lines_outside_code(text):
    """The lines of a page with their numbers, without fenced blocks."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence is None:
            if found and not (found[1][0] == "`" and "`" in found[2]):
                fence = found[1]
                continue
            yield number, line
        elif found and found[1][0] == fence[0] and len(found[1]) >= len(fence) and not found[2].strip():
            fence = None


def slug(heading):
    """The anchor of a heading, without the number that repeated ones get."""
    heading = INLINE.sub(lambda found: found[0].lstrip("!")[1:].rsplit("](", 1)[0], heading)
    heading = re.sub(r"\[([^\[\]]*)\](?:\[[^\]]*\])?", r"\1", heading)
    heading = re.sub(r"<[^>]+>", "", heading)
    heading = re.sub(r"(\*{1,3})(\S(?:.*?\S)?)\1", r"\2", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    """The anchors of a page."""
    found, counts = set(), {}
    for _, line in lines_outside_code(text):
        found.update(ANCHOR.findall(line))
        heading = HEADING.match(line)
        if heading and heading[2]:
            name = slug(heading[2])
            count = counts.get(name, 0)
            counts[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def links(text):
    """The targets of a page's links with their lines."""
    for number, line in lines_outside_code(text):
        bare = CODE.sub(lambda found: " " * len(found[0]), line)
        found = [match[1] for match in END.finditer(bare)] + ATTRIBUTE.findall(bare)
        definition = DEFINITION.match(line)
        if definition:
            found.append(definition[1])
        for target in found:
            yield number, target[1:-1] if target.startswith("<") else target


def listed():
    """The files of the repository, without those that git ignores."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return {name for name in names if name and (ROOT / name).exists()}


def resolve(page, path):
    """The path of a target from the root; None if it leaves the repository."""
    parts = [] if path.startswith("/") else list(PurePosixPath(page).parent.parts)
    for part in PurePosixPath(path.lstrip("/")).parts:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def main():
    files = listed()
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} | {"", "."}
    pages = sorted(name for name in files if name.endswith(".md"))
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages}
    known = {}
    broken, count, chapters = [], 0, set()
    for page in pages:
        for number, target in links(texts[page]):
            if not target or SCHEME.match(target):
                continue
            count += 1
            path, _, anchor = target.partition("#")
            path, anchor = unquote(path.split("?")[0]), unquote(anchor)
            place = resolve(page, path) if path else page
            if page == "docs/SUMMARY.md":
                chapters.add(place)
            if place is None:
                broken.append(f"{page}:{number}: {target} leaves the repository")
            elif place not in files and place not in folders:
                broken.append(f"{page}:{number}: there is no {place}")
            elif anchor and place in texts:
                if place not in known:
                    known[place] = anchors(texts[place])
                if anchor not in known[place]:
                    broken.append(f"{page}:{number}: {place} has no heading with the anchor #{anchor}")
    for page in pages:
        if page.startswith("docs/") and page != "docs/SUMMARY.md" and page not in chapters:
            broken.append(f"{page}:1: the page is not in docs/SUMMARY.md")
    for line in broken:
        print(line)
    print(f"{count} links of {len(pages)} files, {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
