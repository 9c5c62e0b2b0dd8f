"""Writing results: whole or not at all, and no result lost where a disk is full."""

import argparse
import contextlib
import json
import os
import re
import sys

import jax
import pytest
from results import KINDS, made

import jaxq
from jaxq import cli, commands, files, plot
from jaxq.ensemble import Result


@pytest.fixture
def main(monkeypatch):
    """The command line, but for what must happen before JAX starts."""
    monkeypatch.setattr(cli, "_set_up", lambda options: None)
    return cli.main


@contextlib.contextmanager
def full_disk():
    """No file can grow beyond 50 bytes, as where a disk is full; Python ignores the signal. The tests' own cache of compiled
    programs is not written meanwhile."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)


def held(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def drawing():
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(1, 1))[1]


WRITERS = {
    "run.nc": lambda path: made(KINDS["Ensemble"]).save(path),
    "study.csv": lambda path: made(KINDS["Study"]).save_csv(path),
    "pull.csv": lambda path: made(KINDS["PullStudy"]).save_csv(path),
    "graph.csv": lambda path: made(KINDS["GraphStudy"]).save_csv(path),
    "figure.png": lambda path: plot.save(drawing(), path),
    "figure.pdf": lambda path: plot.save(drawing(), path),
    "any": lambda path: files.write_whole(path, lambda partial: partial.write_bytes(bytes(1000)), "the bytes"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_older_file_and_nothing_else(name, tmp_path):
    for older in ({}, {name: b"older"}):
        for content in older.values():
            (tmp_path / name).write_bytes(content)
        with full_disk(), pytest.raises(ValueError, match=rf"^the \w+ could not be written to [^\n]*{name}' \(File too large\); [^\n]*$"):
            WRITERS[name](tmp_path / name)
        assert held(tmp_path) == older
    WRITERS[name](tmp_path / name)
    assert list(held(tmp_path)) == [name]


def test_where_nothing_can_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "file" / "run.nc", tmp_path / "folder", tmp_path / "pipe", "/proc/nowhere/run.nc", "/", "x" * 5000):
        with pytest.raises(ValueError, match=r"^the result could not be written to [^\n]*\([^\n]*\); choose another[^\n]*$"):
            made(KINDS["Ensemble"]).save(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_an_interrupt_leaves_nothing_and_a_link_stays_a_link(tmp_path):
    def interrupted(partial):
        partial.write_text("half")
        raise KeyboardInterrupt

    (tmp_path / "file").write_text("older")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(tmp_path / "link", interrupted, "the text")
    assert held(tmp_path) == {"file": b"older", "link": b"older"}
    files.write_whole(tmp_path / "link", lambda partial: partial.write_text("newer"), "the text")
    assert held(tmp_path) == {"file": b"newer", "link": b"newer"}
    assert (tmp_path / "link").is_symlink()


LIMIT = "limit --d 2 --initial 1 3 --t-end 1 --num-times 2 --exact --json".split()


def test_a_full_disk_loses_no_result_of_the_command_line(main, tmp_path, capsys):
    with full_disk():
        status = main([*LIMIT, "--out", str(tmp_path / "limit.nc"), "--plot", str(tmp_path / "limit.png")])
    said = capsys.readouterr()
    assert status == 2
    assert json.loads(said.out)["T"][0] == [1, 3]
    assert re.fullmatch(r"jaxq: error: the result could not [^\n]*limit.nc[^\n]*; the figure could not [^\n]*limit.png[^\n]*\n", said.err)
    assert not held(tmp_path)


def test_the_figure_is_drawn_where_the_data_cannot_be_saved(main, tmp_path, capsys, monkeypatch):
    def refuse(self, path):
        raise ValueError("no room")

    monkeypatch.setattr(Result, "save", refuse)
    assert main([*LIMIT, "--out", str(tmp_path / "limit.nc"), "--plot", str(tmp_path / "limit.png")]) == 2
    said = capsys.readouterr()
    assert (json.loads(said.out)["times"], said.err) == ([0, 1], "jaxq: error: no room\n")
    assert list(held(tmp_path)) == ["limit.png"]


def options(**more):
    return argparse.Namespace(**{"json": True, "out": None, "plot": None, "command": "jaxq study ..."} | more)


def test_the_folder_of_a_study_on_a_full_disk(tmp_path, capsys):
    study, figure = made(KINDS["Study"]), lambda plot: drawing()
    commands.finish(options(), study, str, figure, tmp_path)
    older = held(tmp_path)
    assert sorted(older) == ["study.csv", "study.nc", "study.png"]
    assert jaxq.load(tmp_path / "study.nc").attrs["command"] == "jaxq study ..."
    capsys.readouterr()
    with full_disk(), pytest.raises(ValueError, match=r"^the result [^\n]*study\.nc[^\n]*; the figure [^\n]*study\.png[^\n]*$"):
        commands.finish(options(), study, str, figure, tmp_path)
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert held(tmp_path) == older


@pytest.mark.slow
def test_a_study_goes_on_where_its_folder_is_full(tmp_path):
    with full_disk(), pytest.warns(UserWarning, match=r"study\.nc' \(File too large\)[^\n]*; the study goes on"):
        study = jaxq.scaling_study(2, 0.5, n=[20], t_end=0.5, num_times=2, replicas=8, key=1, out_dir=tmp_path)
    assert (study.n.tolist(), held(tmp_path)) == ([20], {})
    assert {"seconds", "compile_seconds", "algorithm", "start"} < study.attributes.keys()


@pytest.mark.parametrize("where", ["full", "closed"])
def test_what_cannot_be_printed_is_saved(where, tmp_path, monkeypatch):
    if where == "full":
        if not os.path.exists("/dev/full"):
            pytest.skip("needs /dev/full")
        out = open("/dev/full", "w")
    else:
        reader, writer = os.pipe()
        os.close(reader)
        out = os.fdopen(writer, "w")
    with out, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        refused = pytest.raises(ValueError, match=r"^the result could not be printed \(No space left on device\); write it to --out$")
        with refused if where == "full" else contextlib.nullcontext():
            commands.finish(options(out=str(tmp_path / "run.nc")), made(KINDS["Limit"]), str)
    assert jaxq.load(tmp_path / "run.nc").attrs["command"] == "jaxq study ..."
