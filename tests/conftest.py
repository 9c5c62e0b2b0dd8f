"""Two CPU devices for every test, so that sharding is always exercised."""

import json
import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # with JAX 0.10.1 a screenful for each program that is read from the cache

import jax
import pytest
from hypothesis import settings

from jaxq import cli

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")  # a broadcast that was not meant is an error
settings.register_profile("repeatable", deadline=None, derandomize=True)  # the same examples on any machine, however loaded
settings.load_profile("repeatable")


def pytest_configure(config):
    """Compiled programs are kept beside pytest's own cache, for the processes that tests start too: most of the time is
    compilation, and the slow tests share programs with the quick ones."""
    if hasattr(config, "cache"):
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder = str(config.cache.mkdir("jax"))
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture
def running_jax(monkeypatch):
    """`cli.main` sets the number of CPU devices, which a running JAX refuses to change."""
    update = jax.config.update
    monkeypatch.setattr(jax.config, "update", lambda name, value: None if name == "jax_num_cpu_devices" else update(name, value))


@pytest.fixture
def say(capsys, running_jax):
    """Run `jaxq` on these words, or on those of one line: status, stdout, stderr."""
    def run(*words):
        status = cli.main([*words] if len(words) > 1 else words[0].split())
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def reference():
    """The exact and published values stored beside the tests, by file name."""
    return lambda name: json.loads((Path(__file__).parent / "reference" / f"{name}.json").read_text())["cases"]


def beginnings(file):
    return tuple((Path(__file__).parent / file).read_text().splitlines())


#: Tests that compile for seconds and that one Python is enough for, by the beginnings of their names: they run with the slow ones.
ONCE = beginnings("once.txt")
#: Tests that CI has no time for: bench/long_tests.py runs them and stores how they ended. The names of all under `NAMES`.
LONG, NAMES = beginnings("long.txt"), pytest.StashKey[list]()


@pytest.fixture
def long_tests(request):
    return request.config.stash[NAMES]


def pytest_terminal_summary(terminalreporter):
    """How many bad inputs were tried, on all workers together."""
    counts = [dict(report.user_properties).get("bad_inputs") for kind in ("passed", "failed")
              for report in terminalreporter.getreports(kind) if report.when == "call"]
    if counts := [count for count in counts if count is not None]:
        tried, answered = map(sum, zip(*counts, strict=True))
        terminalreporter.write_line(f"bad inputs: {tried} tried, {answered} answered in one sentence")


def pytest_collection_modifyitems(config, items):
    files = {path.name: path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    for name in (*ONCE, *LONG):
        file, test = name.split("[")[0].split("::")
        if f"def {test}(" not in files.get(file, ""):
            raise pytest.UsageError(f"tests/once.txt and tests/long.txt must name tests; got {name}, which is none")
    names = {item: item.nodeid.split("tests/")[-1] for item in items}
    for item, name in names.items():
        if name.startswith(ONCE):
            item.add_marker(pytest.mark.slow)
        if name.startswith(LONG):
            item.add_marker(pytest.mark.long)
    longs = [item for item in items if item.get_closest_marker("long")]
    config.stash[NAMES] = [names[item] for item in longs]
    if "long" not in config.option.markexpr:
        items[:] = [item for item in items if item not in longs]
        config.hook.pytest_deselected(items=longs)
