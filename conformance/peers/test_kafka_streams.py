"""Kafka Streams with `exactly_once_v2` on three brokers of `odradek up` (`streams_rounds`)."""

from pathlib import Path

import pytest

from conformance.soak.streams_rounds import Streams, brokers

pytestmark = pytest.mark.needs("kafka")


@pytest.mark.timeout(400)
def test_words_are_counted_exactly_once_though_an_instance_and_a_broker_are_killed(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        streams = Streams(cluster, tmp_path, 0, lines=200, faults=["instance killed", "broker killed"])
        assert streams.play() == "", streams.done
