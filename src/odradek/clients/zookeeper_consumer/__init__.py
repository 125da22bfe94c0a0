"""`ZookeeperConsumer`, Kafka 0.8's high-level consumer: groups in the metadata tree, without a coordinator (SPEC 4).

`consumer` has the public class, `streams` the iterators from which the application reads, `settings` the configuration.
`rebalancer` performs rebalances and commits, `group_tree` reads and writes the group's nodes, `offset_storage` keeps
offsets in the tree, in Kafka, or in both. `tree_groups` describes groups for tools. `machine` has the decisions.
"""

from odradek.clients.zookeeper_consumer.consumer import ZookeeperConsumer
from odradek.clients.zookeeper_consumer.machine.membership import RebalanceFailedError
from odradek.clients.zookeeper_consumer.machine.registration import TopicFilter
from odradek.clients.zookeeper_consumer.streams import ConsumerTimeoutError, KafkaStream

__all__ = ["ConsumerTimeoutError", "KafkaStream", "RebalanceFailedError", "TopicFilter", "ZookeeperConsumer"]
