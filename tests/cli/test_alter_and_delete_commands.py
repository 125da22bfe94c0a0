"""The commands that change a cluster while it runs: topics alter, configs, groups delete (M10)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.clients.admin.groups import alter_group_offsets
from odradek.clients.cluster import Cluster as View
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.settings import ClientSettings, make_settings
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime import system_runtime
from tests.world.scenes import awaited

Odradek = Callable[..., Result]


@pytest.fixture
def odradek(kafka: Any) -> Odradek:
    """Runs a command against the cluster; it must succeed unless `fails` is its exit code."""

    def call(*arguments: str, fails: int = 0) -> Result:
        result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", kafka.bootstrap_servers])
        assert result.exit_code == fails, result.output
        return result

    return call


@pytest.fixture
def topic(request: pytest.FixtureRequest, odradek: Odradek) -> str:
    name = request.node.name[:100].replace("[", ".").replace("]", "")
    odradek("topics", "create", name, "--partitions", "2")
    return name


def commit(servers: str, group: str, *partitions: TopicPartition) -> None:
    async def work() -> None:
        cluster = View(make_settings(ClientSettings, {"bootstrap_servers": servers}), system_runtime())
        await cluster.start()
        await alter_group_offsets(cluster, group, dict.fromkeys(partitions, OffsetAndMetadata(1)))
        await cluster.close()

    asyncio.run(work())


def described(odradek: Odradek, *arguments: str) -> dict[str, Any]:
    lines = odradek("configs", "describe", *arguments, "--json").output.splitlines()
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def test_a_topic_is_altered(odradek: Odradek, topic: str) -> None:
    arguments = ("topics", "alter", topic, "--partitions", "4", "-c", "retention.ms=5000", "-c", "segment.ms=7000")
    assert "can be altered" in odradek(*arguments, "--validate-only").output
    odradek(*arguments)
    odradek("topics", "alter", topic, "--delete-config", "segment.ms")
    assert "segment.ms is not set" in odradek("topics", "alter", topic, "--delete-config", "segment.ms").output
    assert "no configuration key 'foo'" in odradek("topics", "alter", topic, "--delete-config", "foo", fails=2).output
    shown = json.loads(odradek("topics", "describe", topic, "--json").output)
    assert (shown["partition_count"], shown["configs"]) == (4, {"retention.ms": "5000"})
    assert "would not be an increase" in odradek("topics", "alter", topic, "--partitions", "3", fails=1).output
    assert "there is no topic" in odradek("topics", "alter", "gone", "--partitions", "3", fails=1).output
    odradek("topics", "alter", topic, fails=2)


def test_a_topic_is_configured_and_shows_what_is_set_and_where(odradek: Odradek, topic: str) -> None:
    odradek("configs", "alter", "--topic", topic, "--set", "retention.ms=5000", "--append", "cleanup.policy=compact")
    entries = described(odradek, "--topic", topic)
    assert {name: (entry["value"], entry["source"]) for name, entry in entries.items()} == {
        "cleanup.policy": ("delete,compact", "DYNAMIC_TOPIC_CONFIG"),
        "retention.ms": ("5000", "DYNAMIC_TOPIC_CONFIG"),
    }
    assert len(described(odradek, "--topic", topic, "--all")) > 20
    table = odradek("configs", "describe", "--topic", topic).output
    assert "retention.ms" in table
    assert "segment.ms" not in table
    odradek("configs", "alter", "-t", topic, "--delete", "retention.ms", "--subtract", "cleanup.policy=compact")
    assert [(entry["name"], entry["value"]) for entry in described(odradek, "-t", topic).values()] == [
        ("cleanup.policy", "delete")
    ]


def test_an_internal_topic_is_deleted_only_with_an_option(odradek: Odradek) -> None:
    assert "add --yes-internal" in odradek("topics", "delete", "__consumer_offsets", fails=2).output


def test_brokers_are_configured_one_or_all(odradek: Odradek) -> None:
    for which in (("--broker", "0"), ("--all-brokers",)):
        odradek("configs", "alter", *which, "-c", "log.roll.jitter.ms=7")
        assert described(odradek, *which)["log.roll.jitter.ms"]["value"] == "7"
        odradek("configs", "alter", *which, "-d", "log.roll.jitter.ms")
        assert described(odradek, *which) == {}


def test_levels_of_a_broker_s_loggers_are_set(odradek: Odradek) -> None:
    which = ("--broker-logger", "0")
    output = odradek("configs", "alter", *which, "-c", "odradek.stores=ERROR").output
    assert output == "broker logger 0 configured\n"
    assert described(odradek, *which)["odradek.stores"]["value"] == "ERROR"
    odradek("configs", "alter", *which, "-d", "odradek.stores")
    assert described(odradek, *which)["odradek.stores"]["value"] != "ERROR"


def test_groups_are_configured(odradek: Odradek) -> None:
    odradek("configs", "alter", "--group", "g", "-c", "consumer.session.timeout.ms=50000")
    shown = described(odradek, "--group", "g")["consumer.session.timeout.ms"]
    assert (shown["value"], shown["source"]) == ("50000", "GROUP_CONFIG")
    odradek("configs", "alter", "--group", "g", "-d", "consumer.session.timeout.ms")
    assert described(odradek, "--group", "g") == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--broker", "0", "--set", "log.dirs=/x"), "cannot be changed while the broker runs"),
        (("--topic", "gone", "--set", "retention.ms=1"), "there is no topic"),
        (("--all-brokers", "--set", "log.retention.ms=soon"), "Invalid value soon for configuration log.retention.ms"),
        (("--broker", "7", "--set", "log.roll.jitter.ms=7"), "broker 7 is not available; live brokers: 0"),
        (("--broker-logger", "0", "--delete", "odradek.nothing"), "there is no configuration key"),
        (("--all-brokers", "--delete", "log.roll.jiter.ms"), "did you mean log.roll.jitter.ms"),
        (("--group", "g", "--delete", "foo"), "there is no configuration key 'foo'"),
        (("--group", "g", "--set", "consumer.session.timeout.ms=9"), "group.consumer.min.session.timeout.ms=45000"),
    ],
)
def test_an_invalid_configuration_is_reported_on_one_line(
    odradek: Odradek, arguments: tuple[str, ...], said: str
) -> None:
    output = odradek("configs", "alter", *arguments, fails=2 if "--delete" in arguments else 1).output
    assert said in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("alter", "--topic", "t", "--broker", "1", "--set", "a=1"),
        ("alter", "--topic", "t", "--group", "g", "--set", "a=1"),
        ("alter", "--set", "a=1"),
        ("alter", "--topic", "t"),
        ("alter", "--topic", "t", "--set", "a"),
        ("describe",),
    ],
)
def test_wrong_usage_prints_the_expected_usage(odradek: Odradek, arguments: tuple[str, ...]) -> None:
    odradek("configs", *arguments, fails=2)


def test_a_group_s_offsets_and_the_group_are_deleted(odradek: Odradek, kafka: Any, topic: str) -> None:
    commit(kafka.bootstrap_servers, topic, TopicPartition(topic, 0), TopicPartition(topic, 1))

    def committed() -> list[int]:
        shown = json.loads(odradek("groups", "describe", topic, "--json").output)
        return [each["partition"] for each in shown["partitions"]]

    assert committed() == [0, 1]
    odradek("groups", "offsets-delete", topic, "--topic", f"{topic}:1")
    assert committed() == [0]
    odradek("groups", "delete", topic)
    assert topic not in odradek("groups", "list").output
    assert "there is no group" in odradek("groups", "delete", topic, fails=1).output
    commit(kafka.bootstrap_servers, topic, TopicPartition(topic, 0), TopicPartition(topic, 1))
    odradek("groups", "offsets-delete", topic, "--topic", topic)
    assert committed() == []
    assert topic in odradek("groups", "list").output, "an empty group outlives its last offset"
    odradek("groups", "offsets-delete", topic, "--topic", f"{topic}:one", fails=2)


@awaited
async def test_admin_places_new_partitions_and_raises_the_broker_s_errors(kafka: Any, topic: str) -> None:
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.create_partitions(topic, 4, assignments=[[0], [0]])
        assert len((await admin.describe_topics([topic]))[topic].partitions) == 4
        with pytest.raises(KafkaError) as raised:
            await admin.create_partitions(topic, 5, assignments=[[7]])
        assert raised.value.code is ErrorCode.invalid_replica_assignment
        resource = ConfigResource(type=ConfigResourceType.TOPIC, name=topic)
        wrong = Alteration(name="retention.ms", operation=AlterOperation.SET, value="soon")
        with pytest.raises(KafkaError, match="Not a number of type LONG"):
            await admin.alter_configs(resource, [wrong])
        with pytest.raises(KafkaError) as raised:
            await admin.delete_group_offsets("nobody", [TopicPartition(topic, 0)])
        assert raised.value.code is ErrorCode.group_id_not_found
