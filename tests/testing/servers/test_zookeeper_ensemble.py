"""The ensemble of ZooKeeper servers that tests start: it outlives its leader."""

from pathlib import Path

import pytest

from odradek.testing import eventually
from odradek.testing.servers.zookeeper import ZookeeperEnsemble


@pytest.mark.needs("zookeeper")
def test_an_ensemble_elects_another_leader_when_its_leader_is_killed(tmp_path: Path) -> None:
    with ZookeeperEnsemble(tmp_path) as ensemble:
        assert sorted(str(server.mode()) for server in ensemble.servers) == ["follower", "follower", "leader"]
        killed = ensemble.leader()
        assert killed is not None
        killed.kill()
        assert killed.mode() is None
        successor = eventually(ensemble.leader, within_s=60.0)
        assert successor is not killed
        killed.start()
        assert killed.mode() == "follower"
    assert not any(server.runs for server in ensemble.servers)
