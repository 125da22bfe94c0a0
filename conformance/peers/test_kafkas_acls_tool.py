"""Apache Kafka's `kafka-acls` changes and lists our broker's ACLs, which are in the tree as Kafka writes them."""

from pathlib import Path
from typing import Final

import pytest

from conformance.peers.kafka_tools import tool
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

OPTIONS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PREFIXED: Final = "resourceType=TOPIC, name=t-, patternType=PREFIXED"
READ: Final = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
DENIED: Final = "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)"


def test_kafka_acls_adds_lists_and_removes(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:

        def acls(*arguments: str) -> str:
            line = ("--bootstrap-server", broker.bootstrap_servers, *arguments)
            return tool("org.apache.kafka.tools.AclCommand", *line)

        prefix = ("--topic", "t-", "--resource-pattern-type", "prefixed")
        acls("--add", "--allow-principal", "User:alice", "--operation", "Read", *prefix)
        acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", *prefix)
        acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "u", "--idempotent")
        found = acls("--list", "--topic", "t-9", "--resource-pattern-type", "match")
        assert PREFIXED in found
        assert READ in found
        assert DENIED in found
        assert "name=u" not in found
        assert "operation=IDEMPOTENT_WRITE" in acls("--list", "--cluster")
        left = acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read", *prefix)
        assert READ not in left
        assert DENIED in acls("--list")
