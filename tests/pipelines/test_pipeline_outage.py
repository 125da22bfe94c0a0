"""A pipeline whose cluster goes away and whose values change their fields: no record is lost or doubled (M11)."""

import json
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.metrics import served_metrics
from odradek.pipelines.runner import PipelineRun
from odradek.pipelines.status import State, Status
from odradek.runtime import system_runtime
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

PIPELINE: Final = """
kind = "real_time"
checkpoint = "state"
guarantee = "exactly_once"
max_bad_rows = "5"
sql = "SELECT concat_ws(' ', number, city) AS value FROM s"
[source]
bootstrap_servers = "{servers}"
max_offsets_per_trigger = 7
kafka = {{ "default.api.timeout.ms" = 5000 }}
[restart]
backoff = "100 milliseconds"
limit = -1
[streams.s]
topics = ["in"]
value = "number INT, city STRING"
[sink]
format = "odradek"
bootstrap_servers = "{servers}"
topic = "out"
options = {{ "kafka.default.api.timeout.ms" = "5000", "kafka.delivery.timeout.ms" = "5000" }}
"""


def committed_values(servers: str) -> list[str]:
    """Return what a consumer of committed records sees, sorted."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition("out", number, OFFSET_BEGINNING) for number in range(2)])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(30)
        assert message is not None, "there is neither a record nor an end"
        if message.error():
            ended += 1
        else:
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


@pytest.mark.long
@pytest.mark.needs("java")
@pytest.mark.timeout(600)
def test_a_pipeline_goes_on_after_an_outage_and_a_change_of_its_values_and_its_metrics_show_it(
    spark: Any, tmp_path: Path
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    options = {"num.partitions": "2", "offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
    with ServedBroker(tmp_path / "broker", options=options) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(name, 2) for name in ("in", "out")]).values():
            future.result(30)

        def publish(first: int, value: Callable[[int], Any]) -> None:
            producer = Producer({"bootstrap.servers": servers})
            for number in range(first, first + 20):
                producer.produce("in", json.dumps(value(number)), partition=number % 2)
            assert producer.flush(60) == 0

        values = tomllib.loads(PIPELINE.format(servers=servers))
        run = PipelineRun(spark, parse_pipeline(values, directory=tmp_path, default_name="job"), system_runtime())
        statuses: list[Status] = []
        with served_metrics(("127.0.0.1", 0), statuses) as address:

            def metric(name: str, *labels: str) -> float:
                statuses[:] = [run.poll()]
                assert run.failure is None
                with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/metrics") as answer:
                    families = list(text_string_to_metric_families(answer.read().decode()))
                wanted = (f"odradek_pipeline_{name}", "job", *labels)
                found = (each for family in families for each in family.samples)
                return next((each.value for each in found if (each.name, *each.labels.values()) == wanted), 0.0)

            try:
                publish(0, lambda number: {"number": number, "city": "Ulm"})
                eventually(lambda: metric("records_in_total") >= 7, within_s=600, what="the first batch")
                broker.kill()
                eventually(lambda: metric("state", State.RESTARTING) == 1, within_s=600, what="a failed attempt")
                broker.start()
                # Later values have another field, lack one, or have another type.
                publish(20, lambda number: {"number": number, "country": "DE"})
                publish(40, lambda number: {"number": number if number < 58 else str(number), "city": "Bonn"})
                eventually(lambda: metric("records_in_total") >= 60, within_s=240, what="all records")
                eventually(lambda: metric("lag") == 0, within_s=60, what="the last report")
                assert metric("restarts_total") >= 1
                assert metric("bad_rows_total") >= 2
            finally:
                run.stop()
            assert metric("state", State.STOPPED) == 1
        cities = {0: " Ulm", 1: "", 2: " Bonn"}
        assert committed_values(servers) == sorted(f"{number}{cities[number // 20]}" for number in range(58))
    letters = ds.dataset(tmp_path / "state.dead_letters", format="parquet").to_table()["value"].to_pylist()
    assert sorted(json.loads(letter)["number"] for letter in letters) == ["58", "59"]
