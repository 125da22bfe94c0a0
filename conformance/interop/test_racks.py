"""M9. Existing clients with `client.rack` read the follower in their rack (KIP-392)."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.testing import Cluster

pytestmark = pytest.mark.long

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.mark.parametrize("rack", ["north", "south", ""])
def test_librdkafka_reads_the_replica_in_its_rack(rack: str) -> None:
    racks = {0: {"broker.rack": "north"}, 1: {"broker.rack": "south"}}
    with Cluster(brokers=2, config={"replica.selector.class": SELECTOR}, broker_configs=racks) as cluster:
        cluster.create_topic("t", assignment={0: [0, 1]})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "client.rack": rack}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("t", 0, 0)])
        for number in range(20):
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush(30)
            message = consumer.poll(30)
            assert message is not None
            assert (message.error(), message.value()) == (None, b"%d" % number)
        consumer.close()
        sent = {number: bytes_out(cluster, number) for number in cluster.brokers}
        assert [number for number, size in sent.items() if size] == [1 if rack == "south" else 0]


def bytes_out(cluster: Cluster, number: int) -> int:
    """Return what a broker has sent to consumers of the topic."""
    traffic = cluster._thread(number).broker.partitions.traffic.get("t")
    return 0 if traffic is None else traffic.bytes_out
