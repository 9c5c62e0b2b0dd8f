"""The pages: their Python runs and prints what they say, their commands are understood, their links lead somewhere; and the
examples of the API run.

Blocks marked `python` run, those of a page in one namespace; blocks marked `py` need another package or a cluster and are compiled
only. A comment behind a `print` is what it prints, the lines of a loop being separated by "; ".
"""

import contextlib
import doctest
import importlib
import inspect
import io
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import jaxq
from jaxq import cli
from jaxq.ensemble import Result

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
SLOW = ("README.md", *(f"docs/{name}.md" for name in (
    "coming_from", "errors", "index", "models/classes", "models/graph", "models/supermarket", "new_model",
    "replicas", "reproducibility")))
API = sorted(page.stem for page in (ROOT / "docs" / "api").glob("*.md"))
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]


def blocks(page, *languages):
    """The fenced blocks of a page in these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def said(code):
    """What the comments behind the prints say, line by line."""
    return [line for comment in re.findall(r"^ *print\(.*\) +# (.*)$", code, re.MULTILINE) for line in comment.split("; ")]


def having(*languages):
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in NAMES if blocks(name, *languages)]


@pytest.mark.filterwarnings("ignore:the warm-up could not be cross-checked")
@pytest.mark.parametrize("page", having("python"))
def test_python_prints_what_the_page_says(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    space = {"__name__": "page"}
    monkeypatch.setitem(sys.modules, "page", types.ModuleType("page"))  # where dataclasses look for their names
    for code in blocks(page, "python"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, page, "exec"), space)
        if wanted := said(code):
            assert out.getvalue().splitlines() == wanted
    plt.close("all")


def test_other_python_compiles():
    for page in NAMES:
        for code in blocks(page, "py"):
            compile(code, page, "exec")


def commands(page):
    """The words behind `jaxq` in every command of a page's shell blocks."""
    for code in blocks(page, "sh", "bash"):
        for line in code.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                for k, word in enumerate(words):
                    if word.split("/")[-1] == "jaxq" and words[0] != "cp":
                        yield words[k + 1:]
                        break


@pytest.mark.parametrize("page", [name for name in NAMES if any(commands(name))])
def test_commands_are_understood(page, monkeypatch, capsys):
    seen = []

    def set_up(options):
        seen.append(options)
        options.run = lambda _: None

    monkeypatch.setattr(cli, "_set_up", set_up)
    for words in commands(page):
        assert cli.main(words) == 0, capsys.readouterr().err
        if seen[-1].build and not isinstance(getattr(seen[-1], "n", None), list):
            seen[-1].build(seen[-1])


@pytest.mark.parametrize("page", NAMES)
def test_commands_in_the_text_have_the_flags_they_name(page, capsys):
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`jaxq( [^`]*)`", text):
        words = [word for word in span.split() if word not in ("COMMAND", "...")]
        verbs = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
        with pytest.raises(SystemExit) as end:
            cli.main([*verbs, "--help"])
        shown = capsys.readouterr().out
        assert end.value.code == 0
        assert all(flag in shown for flag in words if flag.startswith("--")), span


def test_every_link_leads_somewhere():
    lost = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)\s:#]*)(?:#([^)\s]*))?\)", page.read_text()):
            path = (page.parent / target).resolve() if target else page
            if not path.is_file() or (anchor and anchor not in anchors(path)):
                lost.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert lost == []


def anchors(path):
    """The headings of a page as Markdown names them, and what it shows of the API."""
    text = path.read_text()
    headings = [re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
                for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {*headings, *shown(text)}


def shown(text):
    """The dotted names that an API page shows."""
    names = []
    for name, listed in re.findall(r"^::: (\S+)(?:\n    options: \{members: \[([^]]*)\])?", text, re.MULTILINE):
        names += [name, *(f"{name}.{member.strip()}" for member in listed.split(",") if member)]
    return names


def found(name):
    """The object of a dotted name."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            value = importlib.import_module(".".join(parts[:k]))
            break
    for part in parts[k:]:
        value = getattr(value, part)
    return value


def test_the_api_pages_show_all_that_is_public():
    names = [name for page in (ROOT / "docs" / "api").glob("*.md") for name in shown(page.read_text())]
    objects = [found(name) for name in names]
    assert len(set(names)) == len(names)
    public = [value for value in vars(jaxq).values() if getattr(value, "__module__", "").startswith("jaxq.")]
    public += [kind for kind in Result.__subclasses__() if kind.__module__.startswith("jaxq.") and "commands" not in kind.__module__]
    assert [value for value in public if value not in objects] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", API)
def test_every_public_docstring_has_an_example_that_runs(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    runner, said = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE), []
    for name in shown((ROOT / "docs" / "api" / f"{page}.md").read_text()):
        if not isinstance(found(name), types.ModuleType):
            text = inspect.getdoc(found(name))
            assert ">>>" in text, f"{name} has no example"
            runner.run(doctest.DocTestParser().get_doctest(text, {"jaxq": jaxq, "np": np}, name, None, None), out=said.append)
            plt.close("all")
    assert runner.failures == 0, "".join(said)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_loop_in_c_agrees(tmp_path):
    """Means of 20 systems; one strays by 0.0675 (docs/replicas.md), and their mean is V/n = 0.004 from the mean field."""
    code = blocks("docs/coming_from.md", "cpp")[0]
    (tmp_path / "loop.cpp").write_text(code.replace("replicas = 1000", "replicas = 20"))
    subprocess.run(["c++", "-O2", "-o", tmp_path / "loop", tmp_path / "loop.cpp"], check=True)
    mean = float(subprocess.run([tmp_path / "loop"], check=True, capture_output=True).stdout)
    limit = jaxq.mean_field(jaxq.Supermarket(1000, 2, 0.9), [10.0]).mean_queue_length[0]
    assert abs(mean - limit) < 5 * 0.0675 / 20**0.5 + 0.004
