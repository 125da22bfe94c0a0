"""The view of the cluster, of a real one (X3)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any, cast

import pytest

from odradek import __version__
from odradek.clients import Admin, Consumer, Producer
from odradek.clients.admin.descriptions import ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource
from odradek.clients.admin.features import BrokerVersions
from odradek.clients.admin.versions import Versions, read_versions
from odradek.config.altering import Alteration, AlterOperation
from odradek.metadata import paths
from odradek.metadata.store import Node
from odradek.model import ErrorCode, KafkaError, UnavailableError
from odradek.page import readings
from odradek.page.app import PageApp
from odradek.page.clusters import ClusterPages
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.simulation.virtual.clock import VirtualClock
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Cluster
from tests.page.members import reading
from tests.page.visitor import Visitor, visiting

pytestmark = pytest.mark.asyncio


async def test_the_brokers_are_shown_with_their_leaders_replicas_and_disks(kafka: Cluster) -> None:
    kafka.create_topic("shown", partitions=3)
    async with visiting(PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})) as visitor:
        answer = await visitor.get("/")
    assert answer.status == 200
    assert "Broker 0 has not" not in answer.text
    assert f"<td>{kafka.bootstrap_servers}</td>" in answer.text
    assert '<span class="tag">controller</span>' in answer.text
    assert "<meter" in answer.text
    assert f"Odradek {__version__}</td>" in answer.text


async def test_replicas_that_move_are_shown_with_what_is_left(kafka_cluster: Cluster) -> None:
    kafka_cluster.create_topic("moved", assignment={0: [0]})
    settings = {"bootstrap_servers": kafka_cluster.bootstrap_servers}
    async with Producer(**settings) as producer, Admin(**settings) as admin:
        for _ in range(30):
            await (await producer.send("moved", b"x" * 100_000, partition=0))
        throttle = [("follower.replication.throttled.rate", "1")]
        await admin.alter_configs(*_setting(ConfigResourceType.BROKER, "", throttle))
        await admin.alter_configs(
            *_setting(ConfigResourceType.TOPIC, "moved", [("follower.replication.throttled.replicas", "*")])
        )
        await admin.alter_partition_reassignments({("moved", 0): [1]})
        async with visiting(PageSettings(client=settings)) as visitor:
            text = ""
            async with asyncio.timeout(60):
                while "Replicas that move" not in text:
                    text = (await visitor.get("/")).text
    assert '<a href="/topics/moved">moved-0</a>' in text


def _setting(
    kind: ConfigResourceType, name: str, values: list[tuple[str, str]]
) -> tuple[ConfigResource, list[Alteration]]:
    changes = [Alteration(name=key, operation=AlterOperation.SET, value=value) for key, value in values]
    return ConfigResource(type=kind, name=name), changes


async def test_a_level_of_metadata_version_is_named_by_its_release_as_far_as_it_is_known() -> None:
    levels = [1, 7, 8, 25, 29, 33, 34, 99]
    texts = [Versions(brokers={}, features={"metadata.version": level}).feature_texts[0] for level in levels]
    names = ["(Kafka 3.0)", "(Kafka 3.3)", "(Kafka 3.4)", "(Kafka 4.0)", "(Kafka 4.2)", "(Kafka 4.4)", "", ""]
    assert texts == [f"metadata.version {level} {name}".strip() for level, name in zip(levels, names, strict=True)]
    assert Versions(brokers={}, features={"group.version": 1}).feature_texts == ["group.version 1"]


async def test_the_version_of_a_broker_is_that_of_its_configuration_or_unknown() -> None:
    class Brokers:
        async def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, list[ConfigEntry]]:
            if resources[0].name == "2":
                raise KafkaError(ErrorCode.cluster_authorization_failed)
            source = ConfigSource.DEFAULT_CONFIG
            entry = ConfigEntry(
                name="inter.broker.protocol.version", value="3.6-IV2", source=source, is_read_only=True,
                is_sensitive=False,
            )  # fmt: skip
            return {resources[0]: [entry]}

        async def describe_broker_versions(self) -> BrokerVersions:
            raise UnavailableError("no broker answers")

    found = await read_versions(cast("Admin", Brokers()), [1, 2])
    assert found == Versions(brokers={1: "Kafka, protocol 3.6-IV2", 2: ""})


async def test_a_group_that_waits_for_a_member_is_named_with_that_member(kafka: Cluster) -> None:
    kafka.create_topic("stuck", partitions=2)
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    text = ""
    async with (
        visiting(PageSettings(client=servers)) as visitor,
        Consumer("stuck", **servers, group_id="it's", client_id="silent") as silent,
    ):
        while not silent.assignment():
            await silent.poll(timeout_ms=100)
        async with reading(kafka, "stuck", "it's"), visitor.watching("/") as parts, asyncio.timeout(30):
            while "waits until all members have joined again" not in text:
                text = unescape((await anext(parts))["html"])
    assert "Nothing is wrong" not in text
    assert '<a href="/group?id=it%27s">Group it\'s waits' in text
    assert "Not joined again yet: silent-" in text
    assert f"""odradek groups waiting 'it'"'"'s' --bootstrap-server {kafka.bootstrap_servers}""" in text


async def test_a_group_without_members_and_with_lag_is_named_with_a_command_of_this_cluster(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "_LONGEST_WAIT_S", 60.0)  # else a slow machine's first page is without groups
    kafka.create_topic("unread")
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    async with Producer(**servers) as producer, Admin(**servers) as admin:
        await producer.send("unread", b"v")
        await admin.alter_group_offsets("un read", {("unread", 0): 0})
    settings = PageSettings(client=servers, command_options="--profile a")
    async with visiting(settings) as visitor:
        text = unescape((await visitor.get("/")).text)
    assert '<a href="/group?id=un+read">Group un read has no members and a lag of 1.' in text
    assert "odradek groups describe 'un read' --profile a</code>" in text


async def test_a_broker_that_hangs_is_named_after_five_seconds_and_no_longer_when_it_answers(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering, versions = asyncio.Event(), Admin.describe_broker_versions

    async def hung(self: Admin, broker_id: int | None = None) -> BrokerVersions:
        if broker_id is not None:
            await answering.wait()
        return await versions(self, broker_id)

    monkeypatch.setattr(Admin, "describe_broker_versions", hung)
    for name in ("_LONGEST_WAIT_S", "_MOMENT_S"):
        monkeypatch.setattr(readings, name, 0.0)
    clock, client = VirtualClock(), {"bootstrap_servers": kafka.bootstrap_servers}
    async with visiting(PageSettings(client=client), clock=clock) as visitor:
        for pause_s, is_named in ((0.0, False), (4.4, False), (0.2, True), (4.0, True)):
            clock.advance(pause_s)
            text = (await visitor.get("/")).text
            assert ("Broker 0 has not answered for" in text) == is_named
        assert "Broker 0 has not answered for 9 s." in text
        assert "Nothing is wrong" not in text
        answering.set()
        async with asyncio.timeout(20):
            while "has not answered" in (await visitor.get("/")).text:
                pass


async def test_an_answer_that_was_missing_long_ago_is_no_fault_of_now(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_self: Admin, broker_id: int | None = None) -> BrokerVersions:
        raise UnavailableError(f"broker {broker_id} is away")

    monkeypatch.setattr(Admin, "describe_broker_versions", away)
    clock, client = VirtualClock(), {"bootstrap_servers": kafka.bootstrap_servers}
    async with visiting(PageSettings(client=client), clock=clock) as visitor:
        await visitor.get("/")
        clock.advance(3600.0)
        assert "has not answered" not in (await visitor.get("/")).text


@pytest.mark.parametrize(
    ("client", "options"),
    [
        ({}, ""),
        ({"bootstrap_servers": "a:1,b:2"}, " --bootstrap-server a:1,b:2"),
        ({"bootstrap_servers": ["a:1", "b:2"]}, " --bootstrap-server a:1,b:2"),
        ({"security_protocol": "SASL_SSL"}, " --command-config FILE"),
    ],
)
async def test_commands_have_the_options_that_the_cluster_needs(client: dict[str, Any], options: str) -> None:
    assert PageSettings(client=client).options == options


async def test_without_a_cluster_the_page_says_so_and_the_next_request_tries_again() -> None:
    client = {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 50}
    async with visiting(PageSettings(client=client)) as visitor:
        for _ in range(2):
            answer = await visitor.get("/")
            assert answer.status == 503
            assert "no broker answers" in answer.text
            assert '<a class="button main" href="/">Try again</a>' in answer.text
        answer = await visitor.get("/topics/a/messages?from=1")
        assert 'href="/topics/a/messages?from=1">Try again</a>' in answer.text
        assert '<a class="button" href="/topics">Back to Topics</a>' in answer.text


async def test_the_epoch_of_the_controller_is_shown_if_the_page_has_the_tree(kafka: Cluster) -> None:
    client = {"bootstrap_servers": kafka.bootstrap_servers}
    tree, store = MemoryTree(), MemoryStore
    async with visiting(PageSettings(client=client, open_tree=lambda: store(tree))) as visitor:
        without = await visitor.get("/")
        await store(tree).create(paths.CONTROLLER_EPOCH, b"41")
        with_epoch = await visitor.get("/")
    assert (without.status, "epoch" in without.text) == (200, False)
    assert "epoch 41" in with_epoch.text


async def test_a_tree_whose_servers_are_away_does_not_hold_up_the_view(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(MemoryStore):
        async def get(self, path: str) -> Node | None:
            await asyncio.Event().wait()
            raise AssertionError(path)

    for name in ("_LONGEST_WAIT_S", "_MOMENT_S"):
        monkeypatch.setattr(readings, name, 0.0)
    client = {"bootstrap_servers": kafka.bootstrap_servers}
    async with visiting(PageSettings(client=client, open_tree=lambda: Away(MemoryTree()))) as visitor:
        answer = await visitor.get("/")
    assert (answer.status, "epoch" in answer.text) == (200, False)


# ---- Several clusters ------------------------------------------------------------------------------------------------

AWAY = {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 50}


@asynccontextmanager
async def page_of(
    *, login: bool = False, **clients: dict[str, Any]
) -> AsyncIterator[tuple[Visitor, dict[str, PageApp]]]:
    pages = {
        name: PageApp(
            PageSettings(client=client, cluster=name, clusters=tuple(clients), requires_login=login), system_runtime()
        )
        for name, client in clients.items()
    }
    together = ClusterPages(pages)
    try:
        yield Visitor(cast("PageApp", together)), pages
    finally:
        await together.close()


async def test_each_cluster_has_its_addresses_and_leads_to_the_others(kafka: Cluster) -> None:
    async with page_of(here={"bootstrap_servers": kafka.bootstrap_servers}, away=AWAY) as (visitor, pages):
        for address in ("/", "/topics", "/clusters/nowhere/", "/clusters/here"):
            assert (await visitor.get(address)).headers["location"] == "/clusters/here/"
        text = (await visitor.get("/clusters/here/topics?q=a")).text
        assert 'href="/clusters/here/groups"' in text
        assert 'src="/clusters/here/static/page.js?v=' in text
        assert '<a href="/clusters/here/" aria-current="true">here</a>' in text
        assert '<a href="/clusters/away/">away</a>' in text
        assert (await visitor.get("/clusters/here/groups/a")).headers["location"] == "/clusters/here/group?id=a"
        away = await visitor.get("/clusters/away/topics")
        assert (away.status, 'href="/clusters/away/topics">Try again</a>' in away.text) == (503, True)
        token = pages["here"].sessions.find("", "8080")
        assert token is not None
        done = await visitor.post("/clusters/here/create-topic", {"name": "of-one-cluster"}, token.csrf_token)
        assert done.headers["location"].startswith("/clusters/here/topics/of-one-cluster")
        assert (await visitor.post("/clusters/away/create-topic", {"name": "x"}, token.csrf_token)).status == 403


async def test_parts_that_are_sent_later_have_the_addresses_of_their_cluster(kafka: Cluster) -> None:
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    kafka.create_topic("linked")
    async with Admin(**servers) as admin:
        await admin.alter_group_offsets("linked", {("linked", 0): 0})
    async with (
        page_of(here=servers, away=AWAY) as (visitor, _),
        visitor.watching("/clusters/here/groups?q=linked") as parts,
    ):
        async for part in parts:
            if part["id"] == "list":
                assert '<a href="/clusters/here/group?id=linked">' in part["html"]
                break


async def test_a_login_at_one_cluster_is_none_at_another(secure_kafka: Cluster) -> None:
    client = secure_kafka.settings("alice")
    async with page_of(login=True, first=client, second=client) as (visitor, pages):
        refused = await visitor.get("/clusters/first/topics")
        assert refused.headers["location"] == "/clusters/first/login?next=%2Ftopics"
        form = {"user": "alice", "password": "alice-secret"}
        token = pages["first"].sessions.login_token
        done = await visitor.post("/clusters/first/login?next=%2Ftopics", form, token)
        assert (done.status, done.headers["location"]) == (303, "/clusters/first/topics")
        assert (await visitor.get("/clusters/first/topics")).status == 200
        assert (await visitor.get("/clusters/second/topics")).status == 303
