"""A broker at an address of IPv6: its ready line, page, metrics and tree are of use to those who read them."""

import asyncio
import re
import urllib.request
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.clients import ZookeeperConsumer
from odradek.testing.servers.odradek_process import ServedBroker

BESIDE = ("--page", "[::1]:0", "--metrics-listen", "[::1]:0")


def test_a_broker_at_an_address_of_ipv6_serves_every_reader_of_its_address(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", listen="[::1]:0", arguments=BESIDE) as broker:
        assert re.fullmatch(r"\[::1\]:\d+", broker.bootstrap_servers)
        log = broker.errors.read_text()
        (page,), (metrics,) = (re.findall(rf"{name} at (http://\[::1\]:\d+/\S*)", log) for name in ("page", "metrics"))
        for url, said in ((page, f"<td>{broker.bootstrap_servers}</td>"), (metrics, "brokerstate 3.0")):
            with urllib.request.urlopen(url, timeout=60) as response:
                assert said in response.read().decode()
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        producer = Producer(servers)
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        tree = f"sqlite:///{tmp_path}/data/metadata.sqlite"
        assert asyncio.run(first_value_of_generation_1(tree)) == b"x"


async def first_value_of_generation_1(tree: str) -> bytes | None:
    """Return the value of the first record that a consumer reads, which finds the brokers in the tree."""
    async with ZookeeperConsumer(tree, group_id="g", auto_offset_reset="smallest") as consumer, asyncio.timeout(60):
        streams = await consumer.create_message_streams({"t": 1})
        record = await anext(aiter(streams["t"][0]))
        return record.value
