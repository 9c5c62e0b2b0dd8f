"""The package's docstrings as Markdown: arguments and fields become lists, and an asterisk is an asterisk."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ITEM = re.compile(r"(?P<names>[\w.*]+(?:(?:, | and )[\w.*]+)*(?: \([^)]*\))?): (?P<text>.*)")
_SECTION = re.compile(r"(Args|Raises|Returns):$")


class Docstrings(griffe.Extension):
    """Rewrites every docstring once the package is read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of all modules, classes and functions of a package."""
        if pkg.name == "jaxq":
            _rewrite(pkg)


def _rewrite(found: griffe.Object) -> None:
    if found.docstring:
        known = {*found.members, *(parameter.name for parameter in getattr(found, "parameters", ()))}
        found.docstring.value = markdown(found.docstring.value, known)
    for member in found.members.values():
        if not member.is_alias:
            _rewrite(member)


def markdown(text: str, known: set[str]) -> str:
    """The docstring as Markdown; `known`: the names of fields and arguments, whose descriptions make a list."""
    lines: list[str] = []
    literal = listed = False
    margin = 0  # of the items of the list we are in
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        item = _ITEM.match(line.lstrip())
        literal = literal and (depth >= 4 or not line)
        if literal:
            lines.append(line)
        elif _SECTION.match(line):
            lines += ["", f"**{line[:-1]}**", ""]
            margin, listed = 2, False
        elif item and depth in (0, margin) and (_first(item) in known or _first(item)[0] in "*."):
            lines += [] if listed else [""]
            lines.append(f"- **{_plain(item['names'])}**: {_plain(item['text'])}")
            margin, listed = depth, True
        elif listed and (depth > margin or not line):
            lines.append(f"  {_plain(line.strip())}" if line else "")
            listed = bool(line)
        else:
            lines += [""] if listed else []
            lines.append(_plain(line))
            listed = False
        if line.endswith("::"):
            lines[-1] = lines[-1][:-1]
            literal = True
    return "\n".join(lines)


def _first(item: re.Match[str]) -> str:
    return re.split(r"[, ]", item["names"])[0]


def _plain(text: str) -> str:
    """Text without emphasis, code spans as they are."""
    parts = text.split("`")
    return "`".join(part if k % 2 else re.sub(r"([*\[\]])", r"\\\1", part).replace("<", "&lt;") for k, part in enumerate(parts))
