"""Two CPU devices for every test, so that sharding is always exercised."""

import json
import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from jaxq import cli

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # a screenful for each program read from the cache, with JAX 0.10.1
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")  # a broadcast that was not meant is an error
settings.register_profile("repeatable", deadline=None, derandomize=True)  # the same examples on any machine, however loaded
settings.load_profile("repeatable")


def pytest_configure(config):
    """Compiled programs are kept beside pytest's own cache: half of the time is compilation, and the slow tests share programs
    with the quick ones."""
    if hasattr(config, "cache"):
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))
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


#: Tests that compile for seconds and that one Python is enough for: they run with the slow ones, once.
ONCE = (
    "test_classes.py::test_levels_are_judged_in_the_pool_that_needs_them",
    "test_classes.py::test_simulation_meets_the_exact_stationary_law[True]",
    "test_cli.py::test_an_interrupted_study_keeps_the_sizes_it_finished",
    "test_cli.py::test_study_writes_data_table_and_figure",
    "test_cli_steady.py::test_mistakes_are_one_sentence[words6-isolated and stable]",
    "test_engine.py::test_rare_events_happen_as_often_as_they_should",
    "test_engine.py::test_the_number_of_levels_never_changes_a_path[wide]",
    "test_engine.py::test_x64_and_the_device_count_do_not_change_an_integer",
    "test_fit_data.py::test_a_study_folder_gives_back_tails_their_errors_and_the_start",
    "test_heavy_traffic.py::test_bias_of_the_finite_eta_system[100000-0.02108]",
    "test_heavy_traffic.py::test_integral_equation_without_forcing",
    "test_mean_field.py::test_levels_double_until_the_tail_fits",
    "test_mean_field.py::test_slope_in_the_load_by_every_mode",
    "test_mean_field.py::test_the_ode_ends_in_the_closed_form[1-0.5-300.0]",
    "test_mean_field.py::test_the_ode_ends_in_the_closed_form[3-0.8-200.0]",
    "test_mean_field.py::test_the_ode_ends_in_the_closed_form[5-0.9-200.0]",
    "test_pair_approximation.py::test_many_neighbours_tend_to_the_mean_field_of_the_clique",
    "test_pull.py::test_a_clock_with_room_gives_null_ticks_that_change_nothing[many servers, stale]",
    "test_graph.py::test_replicas_blocks_chunks_and_devices_do_not_matter[ring]",
    "test_pull_study.py::test_an_exact_case_is_met",
    "test_pull_theory.py::test_equilibrium_is_a_fixed_point_of_the_drift",
    "test_refined.py::test_second_derivatives_forward_over_reverse_and_finite_differences",
    "test_study.py::test_one_size_has_no_slope",
    "test_classes.py::test_the_fixed_point_ends_the_flow",
    "test_pull_study.py::test_it_is_saved",
    "test_pull_study.py::test_the_figure_shows_every_curve",
    "test_pull_study.py::test_the_supermarket_beside_it_meets_published_theory",
    "test_pull_study.py::test_withdrawn_messages_count_the_customers_that_do_not_wait",
    "test_reference.py::test_exact_transient",
    "test_classes_words.py::test_the_same_integers_for_any_replicas_blocks_chunks_and_x64",
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
    "test_bulk.py::test_batches_cut_at_saves_follow_the_chain",
    "test_graph.py::test_vectors_and_occupancy_agree_in_law[2-False]",
    "test_graph.py::test_vectors_and_occupancy_agree_in_law[3-True]",
    "test_leap.py::test_a_look_between_two_ticks_is_the_beginning_of_the_next",
    "test_leap.py::test_n_of_a_billion_and_the_spread_of_one_system",
    "test_leap.py::test_the_stated_error_of_the_step_is_the_true_one",
    "test_pull.py::test_one_tick_follows_the_rates[stale, three routers]",
    "test_pull.py::test_one_tick_follows_the_rates[three pools]",
    "test_stationary.py::test_what_the_others_leave_of_a_control_must_be_spread_over_many_samples",
    "test_supermarket.py::test_one_tick_follows_the_rates[one choice]",
    "test_supermarket.py::test_one_tick_follows_the_rates[packed buffer]",
    "test_bench.py::test_a_wrong_integer_is_said",
    "test_checkpoint.py::test_an_ended_estimate_goes_on_bit_for_bit[model1-batches]",
    "test_checkpoint.py::test_replicas_that_begin_again_may_be_ended_there",
    "test_checkpoint.py::test_replicas_that_were_looked_at_elsewhere_begin_again",
    "test_cli.py::test_ode",
    "test_cli.py::test_study_reads_a_start_from_a_file_and_warns_of_alpha",
    "test_cli_steady.py::test_meanfield_meets_the_stored_constants",
    "test_engine.py::test_replicas_blocks_chunks_calls_and_devices_do_not_matter[packed distinct]",
    "test_heavy_traffic.py::test_bias_of_the_finite_eta_system[1000-0.18854]",
    "test_kernel.py::test_every_lane_gets_its_own_ticks_and_they_are_those_of_plain_python[buffer, narrow, distinct]",
    "test_leap.py::test_one_step_changes_against_the_steps_themselves",
    "test_leap.py::test_same_integers_whatever_the_save_times_replicas_blocks_and_devices",
    "test_martingale.py::test_the_equation_with_its_own_forcing_returns_the_path",
    "test_memory.py::test_moments_do_not_grow_with_the_save_times",
    "test_ode.py::test_a_path_to_infinity_or_beyond_the_numbers_is_refused",
    "test_ode.py::test_mass_that_leaves_by_the_last_level_is_said",
    "test_overflow.py::test_a_run_that_grows_is_that_of_levels_enough[classes]",
    "test_overflow.py::test_steady_states_do_not_depend_on_the_levels[supermarket]",
    "test_stationary.py::test_few_replicas_raise_no_false_alarm",
    "test_two_queues.py::test_the_number_of_levels_never_changes_a_path",
)


def pytest_terminal_summary(terminalreporter):
    """How many bad inputs were tried, on all workers together."""
    counts = [dict(report.user_properties).get("bad_inputs") for kind in ("passed", "failed")
              for report in terminalreporter.getreports(kind) if report.when == "call"]
    if counts := [count for count in counts if count is not None]:
        tried, answered = map(sum, zip(*counts, strict=True))
        terminalreporter.write_line(f"bad inputs: {tried} tried, {answered} answered in one sentence")


def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.nodeid.split("tests/")[-1].startswith(name) for name in ONCE):
            item.add_marker(pytest.mark.slow)
