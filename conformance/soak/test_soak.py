"""`make soak` for one short round, as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.soak import soak_network
from conformance.soak.chain_rounds import Chain, chains

pytestmark = pytest.mark.long

SOAK = Path(__file__).with_name("soak.py")
DEADLINE_S = 240.0


@pytest.mark.needs("zookeeper")
@pytest.mark.timeout(2 * DEADLINE_S)
def test_a_round_of_overlapping_faults_on_an_ensemble_finds_nothing(tmp_path: Path) -> None:
    """M1, M9: killed, cut off and restarted under clients; nothing acknowledged is lost, doubled or reordered."""
    if trouble := soak_network.trouble():
        pytest.skip(f"no namespaces: {trouble}")
    command = [sys.executable, str(SOAK), "--rounds", "1", "--seconds", "8", "--seed", "5", "--folder", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(SOAK.parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rounds, " in done.stdout
    assert "nothing found" in done.stdout
    assert not list(tmp_path.iterdir())


# ---- Rounds of chains ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_each_record_has_its_effect_once_though_processes_and_brokers_are_killed(tmp_path: Path, seed: int) -> None:
    with chains(tmp_path) as cluster:
        chain = Chain(cluster, tmp_path, seed, faults=3)
        assert chain.play() == "", chain.done
