"""`odradek acls` against a cluster of a few lists."""

import json
from typing import Any, Final

import pytest
from click.testing import CliRunner

from odradek.cli import common, main
from odradek.clients.admin.descriptions import BrokerDescription, ClusterDescription, ConfigEntry, ConfigSource
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclBinding, AclFilter

HEADER: Final = "PRINCIPAL   PERMISSION  OPERATION  RESOURCE  PATTERN  NAME  HOST\n"


class FakeAdmin:
    """An `Admin` whose cluster has ACLs and the keys of an authorizer."""

    def __init__(self) -> None:
        self.bindings: list[AclBinding] = []
        self.keys: dict[str, str] | None = {"super.users": "User:root; User:CN=a,O=b"}

    async def __aenter__(self) -> "FakeAdmin":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def create_acls(self, bindings: list[AclBinding]) -> None:
        self.bindings += bindings

    async def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        return [
            each
            for each in sorted(self.bindings)
            if wanted.matches_pattern(each.pattern) and wanted.matches_entry(each.entry)
        ]

    async def delete_acls(self, filters: list[AclFilter]) -> list[AclBinding]:
        removed = await self.describe_acls(filters[0])
        self.bindings = [each for each in self.bindings if each not in removed]
        return removed

    async def describe_cluster(self) -> ClusterDescription:
        broker = BrokerDescription(broker_id=7, host="h", port=1, rack=None)
        return ClusterDescription(cluster_id="c", controller_id=7, brokers=(broker,))

    async def describe_configs(self, resources: list[Any]) -> dict[Any, list[ConfigEntry]]:
        if self.keys is None:
            raise KafkaError(ErrorCode.cluster_authorization_failed)
        entries = [
            ConfigEntry(
                name=name,
                value=value,
                source=ConfigSource.STATIC_BROKER_CONFIG,
                is_read_only=True,
                is_sensitive=False,
            )
            for name, value in self.keys.items()
        ]
        return {resources[0]: entries}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    cluster = FakeAdmin()
    monkeypatch.setattr(common, "admin", lambda: cluster)
    return cluster


def odradek(line: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["acls", *line.split()])
    assert result.exit_code == code, result.output
    return str(result.output)


def test_acls_are_added_listed_and_removed(cluster: FakeAdmin) -> None:
    assert odradek("add User:alice read topic:t") == "added: Allow User:alice Read from * on Topic:LITERAL:t\n"
    odradek("add User:bob describe-configs transactional-id:x- --prefixed --deny --host 10.0.0.1")
    odradek("add User:bob all cluster")
    row = "User:alice  ALLOW       Read       Topic     LITERAL  t     *\n"
    assert odradek("list --resource topic:t") == HEADER + row
    assert odradek("list --resource transactional-id:x-1 --json") == (
        '{"principal":"User:bob","permission":"DENY","operation":"DescribeConfigs","resource":"TransactionalId",'
        '"pattern":"PREFIXED","name":"x-","host":"10.0.0.1"}\n'
    )
    assert odradek("remove --resource transactional-id:x-") == "no ACL matches\n", "the name of a prefix is not literal"
    removed = "removed: Deny User:bob DescribeConfigs from 10.0.0.1 on TransactionalId:PREFIXED:x-\n"
    assert odradek("remove --resource transactional-id:x- --prefixed") == removed
    assert odradek("remove --deny") == "no ACL matches\n"
    assert odradek("remove --allow --principal User:bob").startswith("removed: Allow User:bob All from * on Cluster:")
    assert len(cluster.bindings) == 1
    odradek("remove --all")
    assert cluster.bindings == []


def test_the_acl_that_decides_is_shown(cluster: FakeAdmin) -> None:
    odradek("add User:alice read topic:t")
    odradek("add User:* write topic:t --deny")
    assert (
        odradek("explain User:alice describe topic:t") == "allowed: Allow User:alice Read from * on Topic:LITERAL:t\n"
    )
    assert odradek("explain User:alice write topic:t") == "denied: Deny User:* Write from * on Topic:LITERAL:t\n"
    assert odradek("explain User:CN=a,O=b write topic:t") == "allowed: the principal is a super user\n"
    assert odradek("explain User:alice delete topic:t").startswith(
        "denied: none of the resource's ACLs allows it\nPRIN"
    )
    no_acls = "no ACL is for this resource, and allow.everyone.if.no.acl.found decides\n"
    assert odradek("explain User:alice read topic:u") == f"denied: {no_acls}"
    cluster.keys = {"allow.everyone.if.no.acl.found": "true"}
    assert odradek("explain User:alice read topic:u") == f"allowed: {no_acls}"
    cluster.keys = None
    assert "do not show super.users and allow.everyone" in odradek("explain User:root read topic:t")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("add alice read topic:t", "'alice' is not a principal: TYPE:NAME, for instance User:alice"),
        ("add User:alice fly topic:t", "'fly' is not one of all, read, write, create"),
        ("add User:alice any topic:t", "'any' is not one of all, read"),
        ("add User:alice read topic", "'topic' is not TYPE:NAME with a type of topic, group, cluster"),
        ("add User:alice read any:t", "'any:t' is not TYPE:NAME"),
        ("remove", "choose ACLs with --principal"),
        ("remove --all --deny", "choose ACLs with --principal"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_right(cluster: FakeAdmin, line: str, problem: str) -> None:
    assert problem in odradek(line, code=2)
    assert cluster.bindings == []


# ---- Quotas ----------------------------------------------------------------------------------------------------------


def run(*arguments: str, fails: int = 0) -> str:
    result = CliRunner().invoke(main, ["quotas", *arguments])
    assert result.exit_code == fails, (result.output, result.exception)
    return result.output


def test_quotas_are_set_listed_and_removed(kafka: Any) -> None:
    server, client = ("-b", kafka.bootstrap_servers), ("--user", "eve", "--default-client-id")
    assert "eve" not in run("list", *server)
    set_ = run("set", "producer_byte_rate=1e6", "request_percentage=2.5", *client, *server)
    assert set_ == "user eve, client-id <default>: quotas set\n"
    listed = [line.split()[-2:] for line in run("list", *server).splitlines() if "eve" in line]
    assert listed == [["producer_byte_rate", "1000000"], ["request_percentage", "2.5"]]
    (line,) = run("list", "--json", *server).splitlines()
    assert json.loads(line) == {
        "entity": {"user": "eve", "client_id": None},
        "quotas": {"producer_byte_rate": 1e6, "request_percentage": 2.5},
    }
    run("remove", "request_percentage", *client, *server)
    assert "and nothing is removed" in run("remove", "request_percentage", *client, *server)
    assert "user eve, client-id <default>: quotas removed" in run("remove", *client, *server)
    assert "there are no quotas" in run("remove", *client, *server)
    assert "greater than 0" in run("set", "producer_byte_rate=-1", *client, *server, fails=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Invalid empty client quota entity"),
        (("--user", ""), "Empty user not supported"),
        (("--user", "a", "--default-user"), "duplicate entity entry user"),
        (("--ip", "10.0.0.1", "--client-id", "c"), "IP entity shouldnot be combined"),
    ],
)
def test_a_command_without_one_entity_is_wrong(arguments: tuple[str, ...], says: str) -> None:
    assert says in run("set", "producer_byte_rate=1", *arguments, fails=2)
    assert says in run("remove", *arguments, fails=2)


def test_a_value_is_a_number() -> None:
    assert "is a number, not 'fast'" in run("set", "producer_byte_rate=fast", "--user", "a", fails=2)
