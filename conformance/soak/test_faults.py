"""SPEC 12 with real processes: three brokers, replication factor 3, `min.insync.replicas` 2, and clients of others.

Three of the nine faults, drawn by the run's seed, and with `ODRADEK_SEEDS` all of them, with the tree in SQLite; `make
soak` has ZooKeeper's.
"""

import os
import random
from pathlib import Path

import pytest

from conformance.soak.fault_rounds import FAULTS, trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def play(directory: Path, metadata: str, seed: int) -> None:
    faults = list(FAULTS)
    random.Random(seed).shuffle(faults)
    if "ODRADEK_SEEDS" not in os.environ:
        del faults[3:]
    with trial(directory, metadata, seed) as tried:
        for fault in faults:
            tried.inflict(fault)
        found = tried.finish()
        print("\n".join(map(str, tried.outcomes)))
        assert found == ""
        assert tried.clients.history.acknowledged() > 0


def test_nothing_acknowledged_is_lost_doubled_or_reordered_whatever_happens_to_a_broker(tmp_path: Path, seed: int):
    """M1, M9: the tree in SQLite."""
    play(tmp_path, f"sqlite:///{tmp_path}/metadata.sqlite", seed)
