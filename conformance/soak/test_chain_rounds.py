"""Consume, process, produce: two groups of transactional processes, killed with their brokers (`chain_rounds`)."""

from pathlib import Path

import pytest

from conformance.soak.chain_rounds import Chain, chains

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
def test_each_record_has_its_effect_once_though_processes_and_brokers_are_killed(tmp_path: Path, seed: int) -> None:
    with chains(tmp_path) as cluster:
        chain = Chain(cluster, tmp_path, seed, faults=2)
        assert chain.play() == "", chain.done
