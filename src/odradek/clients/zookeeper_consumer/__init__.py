"""`ZookeeperConsumer`, Kafka 0.8's high-level consumer: groups in the metadata tree, without a coordinator (SPEC 4).

`rebalancer` performs what `machine` decides; the application reads from `streams`.
"""

from odradek.clients.zookeeper_consumer.consumer import ZookeeperConsumer
from odradek.clients.zookeeper_consumer.machine.membership import RebalanceFailedError
from odradek.clients.zookeeper_consumer.machine.registration import TopicFilter
from odradek.clients.zookeeper_consumer.streams import ConsumerTimeoutError, KafkaStream

__all__ = ["ConsumerTimeoutError", "KafkaStream", "RebalanceFailedError", "TopicFilter", "ZookeeperConsumer"]
