"""Run the tests that CI has no time for, those of tests/long.txt, and store how they ended, for the test that reads it.

python bench/long_tests.py --out bench/results/long_tests.md
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from provenance import flags, provenance, report

TESTS = Path(__file__).parents[1] / "tests"


def main() -> None:
    options = flags(__doc__, rounds=None, quick="those of tests/test_memory.py alone").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "tests.xml"
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "long", f"--junit-xml={xml}", "-o",
                               "junit_family=xunit1", TESTS / "test_memory.py" if options.quick else TESTS], check=False)
        cases = list(ElementTree.parse(xml).getroot().iter("testcase"))
    lines = ["# Long tests", "", provenance("python bench/long_tests.py --out bench/results/long_tests.md"), "",
             f"pytest ended with status {done.returncode}: {len(cases)} tests.", "", "| test | outcome | s |", "|---|---|---|"]
    for case in sorted(cases, key=lambda case: (case.get("file"), case.get("name"))):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        lines.append(f"| `{Path(case.get('file', '')).name}::{case.get('name')}` | {outcome} | {float(case.get('time', 0)):.0f} |")
    report(lines, options.out)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
