"""Two CPU devices for every test, so that sharding is always exercised."""

import json
from pathlib import Path

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "allow")


@pytest.fixture(scope="session")
def reference():
    """The exact and published values stored beside the tests, by file name."""
    return lambda name: json.loads((Path(__file__).parent / "reference" / f"{name}.json").read_text())["cases"]
