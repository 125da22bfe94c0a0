"""The page shows Apache Kafka as it shows our broker: the cluster, and a topic from its creation to its deletion."""

import pytest
from compare_with_kafka import BrokerPair
from visitor import visiting

from odradek.page.settings import PageSettings

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.asyncio]


async def test_a_topic_of_kafka_is_created_shown_altered_and_deleted(pair: BrokerPair) -> None:
    for broker in (pair.kafka, pair.ours):
        async with visiting(PageSettings(client={"bootstrap_servers": broker.bootstrap_servers})) as visitor:
            assert '<span class="tag">controller</span>' in (await visitor.get("/")).text
            form = {"name": "paged", "partitions": "2", "configs": "retention.ms=77000"}
            assert (await visitor.post("/create-topic", form)).status == 303
            assert ">paged</a>" in (await visitor.get("/topics?q=paged")).text
            shown = (await visitor.get("/topics/paged")).text
            assert "77000" in shown
            assert "Kafka&#39;s default" in shown
            assert (await visitor.post("/topics/paged/partitions", {"total": "1"})).status == 400
            assert (await visitor.post("/topics/paged/delete", {"name": "paged"})).status == 303
