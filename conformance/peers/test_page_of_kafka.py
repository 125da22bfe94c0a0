"""The page shows Apache Kafka as it shows our broker: the cluster, a topic, a group."""

import asyncio
from html import unescape

import pytest

from conformance.peers.compare_with_kafka import BrokerPair
from odradek.clients import Admin, Consumer
from odradek.page.settings import PageSettings
from tests.page.members import only_member, reading
from tests.page.visitor import Visitor, visiting

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.asyncio]


async def test_a_topic_of_kafka_is_created_shown_altered_and_deleted(pair: BrokerPair) -> None:
    for broker in (pair.kafka, pair.ours):
        async with visiting(PageSettings(client={"bootstrap_servers": broker.bootstrap_servers})) as visitor:
            cluster = (await visitor.get("/")).text
            assert '<span class="tag">controller</span>' in cluster
            told = "Odradek " if broker is pair.ours else "metadata.version "
            assert told in cluster
            form = {"name": "paged", "partitions": "2", "configs": "retention.ms=77000"}
            assert (await visitor.post("/create-topic", form)).status == 303
            assert ">paged</a>" in (await visitor.get("/topics?q=paged")).text
            shown = (await visitor.get("/topics/paged")).text
            assert "77000" in shown
            assert "keys have Kafka's default" in shown
            assert (await visitor.post("/topics/paged/partitions", {"total": "1"})).status == 400
            assert (await visitor.post("/topics/paged/delete", {"name": "paged"})).status == 303


async def test_a_group_of_kafka_is_shown_with_its_members_lag_and_what_a_change_would_move(pair: BrokerPair) -> None:
    for broker in (pair.kafka, pair.ours):
        servers = broker.bootstrap_servers
        async with visiting(PageSettings(client={"bootstrap_servers": servers}, interval_s=0.0)) as visitor:
            await visitor.post("/create-topic", {"name": "grouped", "partitions": "3"})
            for value in ("a", "b"):
                form = {"value": value, "partition": "0"}
                assert (await visitor.post("/topics/grouped/produce", form)).status == 303
            async with reading(broker, "grouped", "page-group"):
                member = await only_member(broker, "page-group")
                assert 'href="/group?id=page-group"' in (await visitor.get("/groups?q=page-gr")).text
                one = await visitor.get("/group?id=page-group")
                assert (one.status, "Stable" in one.text) == (200, True)
                assert member in (await visitor.get("/group/members?id=page-group")).text
                change = await visitor.get("/group/what-if?id=page-group&add_members=1&strategy=cooperative-sticky")
                assert "1 partition moves." in change.text
                history = await visitor.get("/group/history?id=page-group")
            preview = await visitor.get("/group/reset?id=page-group&to=to_earliest")
            assert "2 records will be read again" in preview.text
            assert (history.status, "journal" in history.text) == (200, broker is pair.kafka)


async def test_a_rebalance_of_kafka_is_shown_while_a_member_holds_it_up_and_afterwards(pair: BrokerPair) -> None:
    servers = pair.kafka.bootstrap_servers
    settings = PageSettings(client={"bootstrap_servers": servers}, interval_s=0.0)

    def consumer(name: str) -> Consumer:
        return Consumer(
            "rebalanced", bootstrap_servers=servers, group_id="page-rebalance", client_id=name,
            heartbeat_interval_ms=100, partition_assignment_strategy="range",
        )  # fmt: skip

    async def look_for(visitor: Visitor, *words: str) -> str:
        async with asyncio.timeout(60):
            while True:
                text = unescape((await visitor.get("/group?id=page-rebalance")).text)
                if all(each in text for each in words):
                    return text

    async def poll(member: Consumer) -> None:
        while True:
            await member.poll(timeout_ms=100)

    async with visiting(settings) as visitor:
        await visitor.post("/create-topic", {"name": "rebalanced", "partitions": "2"})
        async with consumer("slow") as slow:
            while not slow.assignment():
                await slow.poll(timeout_ms=100)
            await look_for(visitor, "Stable")
            async with consumer("new") as new:  # "slow" sends heartbeats, but does not poll, so it does not join again
                polling = [asyncio.create_task(poll(new))]
                text = await look_for(visitor, "The group rebalances, since", "PreparingRebalance")
                assert "had partitions before: slow" in text
                polling.append(asyncio.create_task(poll(slow)))
                text = await look_for(visitor, "Stable", "The last rebalance, as this page saw it")
                assert "The cluster has no journal of this rebalance" in text
                assert "The group rebalances" not in text
                assert "<svg" in text
                for task in polling:
                    task.cancel()
                await asyncio.gather(*polling, return_exceptions=True)
    async with Admin(servers) as admin:  # later tests list the groups of this cluster
        await admin.delete_groups(["page-rebalance"])
