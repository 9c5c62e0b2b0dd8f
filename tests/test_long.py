"""The tests that CI has no time for have passed: `python bench/long_tests.py --out bench/results/long_tests.md`."""

from pathlib import Path

STORED = Path(__file__).parents[1] / "bench" / "results" / "long_tests.md"


def test_every_long_test_has_passed(long_tests):
    rows = [line.strip("|").split(" | ") for line in STORED.read_text().splitlines() if line.startswith("| `")]
    outcomes = {name.strip(" `"): outcome for name, outcome, _ in rows}
    assert set(outcomes.values()) == {"passed"}
    assert set(long_tests) <= set(outcomes), "run bench/long_tests.py again: it knows nothing of these"
