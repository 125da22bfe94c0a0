"""`ZookeeperConsumer`, the high-level consumer of generation 1, which needs no coordinator (SPEC 4).

`consumer` is the public face, `streams` has what a thread of the application reads, `group_tree` reads and writes the
group's nodes, `offset_storage` keeps offsets in the tree, in Kafka, or in both.
"""

from odradek.clients.zookeeper_consumer.consumer import ZookeeperConsumer
from odradek.clients.zookeeper_consumer.streams import ConsumerTimeoutError, KafkaStream
from odradek.groups.zookeeper.membership import RebalanceFailedError
from odradek.groups.zookeeper.registration import TopicFilter

__all__ = ["ConsumerTimeoutError", "KafkaStream", "RebalanceFailedError", "TopicFilter", "ZookeeperConsumer"]
