"""A seed gives the same result, byte for byte, in every process and on every release of Python.

`ODRADEK_PYTHONS` names more interpreters that have the project's packages, such as those of Python 3.12 and 3.13.
"""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

PYTHONS = os.environ.get("ODRADEK_PYTHONS", "").split()
PROGRAM = """
import logging, sys
import msgspec
from odradek.simulation.seed_run import SeedPlan, run_seed
logging.disable()
for seed in map(int, sys.argv[1:]):
    result = run_seed(SeedPlan(seed=seed, virtual_s=20.0))
    print(msgspec.json.encode(result, order="deterministic").decode())
"""


def results(python: str, hash_seed: str, *seeds: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src"}
    command = [python, "-c", PROGRAM, *map(str, seeds)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=240)
    return done.stdout


def test_two_processes_with_other_hashes_of_strings_give_the_same_result():
    first = results(sys.executable, "0", 4)
    assert '"digest"' in first
    assert first == results(sys.executable, "1", 4)


@pytest.mark.needs("pythons")
def test_every_release_of_python_gives_the_same_result():
    here = results(sys.executable, "0", 2, 3, 9)
    assert {python: results(python, "2", 2, 3, 9) for python in PYTHONS} == dict.fromkeys(PYTHONS, here)
