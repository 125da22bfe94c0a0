"""The page shows Apache Kafka as it shows our broker: the cluster, a topic, a group."""

import pytest
from compare_with_kafka import BrokerPair
from members import only_member, reading
from visitor import visiting

from odradek.page.settings import PageSettings

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
            assert "Kafka&#39;s default" in shown
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
