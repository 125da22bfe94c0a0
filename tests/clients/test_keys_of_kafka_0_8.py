"""Keys of Kafka 0.8: clients that lack one name what to use instead."""

from typing import Any

import pytest

from odradek.clients import Admin, Consumer, Producer, SimpleConsumer, ZookeeperConsumer
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import ABSENT_KEYS, RENAMED
from odradek.config.definition import definitions
from odradek.model import ConfigurationError

OF_KAFKA_0_8 = [key for key in ABSENT_KEYS if key in RENAMED or "ZookeeperConsumer" in ABSENT_KEYS[key]]


@pytest.mark.parametrize("client", [Admin, Consumer, Producer, SimpleConsumer])
@pytest.mark.parametrize("key", OF_KAFKA_0_8)
def test_a_client_names_the_successor_of_a_key_of_kafka_0_8(client: Any, key: str) -> None:
    instead = RENAMED.get(key, "ZookeeperConsumer")
    with pytest.raises(ConfigurationError, match=f"is not supported here: .*{instead}"):
        client(**{key.replace(".", "_"): "1"})


def test_a_successor_is_a_key_of_a_client() -> None:
    assert set(RENAMED.values()) <= {*definitions(ConsumerSettings), *definitions(ProducerSettings)}


@pytest.mark.parametrize("word", ["smallest", "largest"])
def test_the_words_of_kafka_0_8_for_a_reset_are_translated_in_the_error(word: str) -> None:
    with pytest.raises(ConfigurationError, match=r"smallest is earliest, largest is latest"):
        Consumer("t", auto_offset_reset=word)
    ZookeeperConsumer(auto_offset_reset=word)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("enable_auto_commit", "auto.commit.enable"),
        ("max_partition_fetch_bytes", "fetch.message.max.bytes"),
        ("fetch_max_wait_ms", "fetch.wait.max.ms"),
        ("session_timeout_ms", "zookeeper.session.timeout.ms"),
    ],
)
def test_the_consumer_of_kafka_0_8_names_its_word_for_a_later_key(new: str, old: str) -> None:
    with pytest.raises(ConfigurationError, match=f"is not supported here: use {old}"):
        ZookeeperConsumer(**{new: "1"})  # type: ignore[arg-type]
