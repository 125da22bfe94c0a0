"""Spark reads and writes a secured cluster, and no password is in the checkpoint, plan, progress or log (X2)."""

from pathlib import Path
from typing import Any, Final

import pytest

from odradek.clients.blocking import Consumer, Producer
from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(240)]

PASSWORD: Final = "geheim-und-streng"


def test_streams_reach_a_secured_cluster_and_no_password_is_written(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster(security="sasl_ssl", users={"alice": PASSWORD}) as cluster:
        login = cluster.settings("alice")
        keys = {f"kafka.{key.replace('_', '.')}": str(value) for key, value in login.items()}
        assert PASSWORD in "".join(keys.values())
        with Producer(**login) as producer:
            for number in range(3):
                producer.send("source", b"%d" % number).result()
        grouped = {"consumeMode": "group", "kafka.group.id": "g"}
        for topic, more in (("direct", {}), ("grouped", grouped)):
            checkpoint = tmp_path / topic
            options = {**keys, **more, "subscribe": "source", "startingOffsets": "earliest"}
            frame = spark.readStream.format("odradek").options(**options).load().select("value")
            sink = frame.writeStream.format("odradek").options(**keys, topic=topic, checkpointLocation=str(checkpoint))
            query = sink.trigger(availableNow=True).start()
            assert query.awaitTermination(120)
            shown = [query.lastProgress.json, str(query.status), repr(frame)]
            frame.explain(extended=True)
            query.explain(extended=True)
            shown += [*capfd.readouterr(), caplog.text]
            written = [path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()]
            assert written
            assert not any(PASSWORD in text for text in shown)
            assert not any(PASSWORD.encode() in content for content in written)
            with Consumer(topic, **login, auto_offset_reset="earliest") as consumer:
                assert sorted(next(consumer).value or b"" for _ in range(3)) == [b"0", b"1", b"2"]
        batch = spark.read.format("odradek").options(**keys, subscribe="source").load()
        assert batch.count() == 3
        wrong = keys | {key: value.replace(PASSWORD, "wrong") for key, value in keys.items()}
        with pytest.raises(Exception, match=r"AuthenticationError: broker .*invalid credentials") as raised:
            spark.read.format("odradek").options(**wrong, subscribe="source").load().count()
        assert PASSWORD not in str(raised.value)
