"""Two CPU devices for every test, so that sharding is always exercised."""

import json
from pathlib import Path

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_num_cpu_devices", 2)
settings.register_profile("repeatable", deadline=None, derandomize=True)  # the same examples on any machine, however loaded
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def reference():
    """The exact and published values stored beside the tests, by file name."""
    return lambda name: json.loads((Path(__file__).parent / "reference" / f"{name}.json").read_text())["cases"]


#: Tests that compile for seconds and that one Python is enough for: they run with the slow ones, once.
ONCE = (
    "test_classes.py::test_the_same_integers_for_any_replicas_blocks_chunks_and_x64",
    "test_engine.py::test_replicas_blocks_chunks_calls_and_devices_do_not_matter[wide]",
    "test_graph.py::test_real_networks_run",
    "test_pull.py::test_one_tick_follows_the_rates[many servers, stale]",
    "test_supermarket.py::test_one_tick_follows_the_rates[all, distinct]",
    "test_engine.py::test_replicas_blocks_chunks_calls_and_devices_do_not_matter[graph]",
    "test_engine.py::test_replicas_blocks_chunks_calls_and_devices_do_not_matter[narrow]",
    "test_engine.py::test_the_number_of_levels_never_changes_a_path[graph]",
    "test_graph.py::test_replicas_blocks_chunks_and_devices_do_not_matter[irregular]",
    "test_graph.py::test_replicas_blocks_chunks_and_devices_do_not_matter[large]",
    "test_graph.py::test_every_way_to_draw_follows_the_law",
    "test_heavy_traffic.py::test_finite_eta_is_differentiable_where_servers_are_empty",
    "test_mean_field.py::test_pull_has_its_closed_equilibrium_and_stops_where_messages_run_out",
    "test_pair_approximation.py::test_values_of_an_independent_program",
    "test_pull.py::test_a_clock_with_room_gives_null_ticks_that_change_nothing[two pools]",
    "test_pull_invariants.py::test_replicas_blocks_chunks_calls_and_devices_do_not_matter[three pools]",
    "test_pull_invariants.py::test_replicas_blocks_chunks_calls_and_devices_do_not_matter[many servers, stale]",
    "test_pull_invariants.py::test_the_number_of_levels_never_changes_a_path",
    "test_pull_invariants.py::test_nothing_is_lost_but_what_is_counted",
    "test_pull_values.py::test_simulation_meets_the_exact_stationary_values[2-8.0-400]",
    "test_reference.py::test_exact_stationary_laws[1]",
    "test_reference.py::test_published_stationary_means[2]",
    "test_reference.py::test_published_stationary_means[3]",
    "test_supermarket.py::test_one_tick_follows_the_rates[all, with replacement]",
    "test_supermarket.py::test_one_tick_follows_the_rates[narrow distinct]",
    "test_two_queues.py::test_replicas_chunks_calls_devices_and_x64_do_not_matter",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.nodeid.split("tests/")[-1].startswith(name) for name in ONCE):
            item.add_marker(pytest.mark.slow)
