"""Hooks of the site: equations become MathML, and what pages link to outside docs/ comes along.

MathML is drawn by the browser itself, so that no page asks the network for a script or a font.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

_MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s:#]+)(#[^)\s]*)?\)")
_BESIDE = ("bench/results/*", "bench/*.py", "notebooks/*.ipynb", "jaxq/*.py", "tests/*.py", "CHANGELOG.md", "CONTRIBUTING.md",
           "CITATION.cff")


def on_files(files: Any, config: Any) -> Any:
    """Add the files beside docs/ that a page may link to."""
    root = Path(config.config_file_path).parent
    for path in sorted(path for pattern in _BESIDE for path in root.glob(pattern)):
        files.append(File.generated(config, f"beside/{path.relative_to(root).as_posix()}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the repository, to where the site has their targets."""
    name = page.file.src_uri
    here = name.removeprefix("beside/") if name.startswith("beside/") else f"docs/{name}"

    def moved(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(here), match[1]))
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"beside/{target}"
        return f"]({os.path.relpath(place, os.path.dirname(name) or '.')}{match[2] or ''})"

    return _LINK.sub(moved, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """The page's HTML with its equations as MathML."""
    def drawn(match: re.Match[str]) -> str:
        return str(convert(html.unescape(match[2]), display="inline" if match[1] == "span" else "block"))

    return _MATH.sub(drawn, content)
