"""Pipelines of each kind on a secured cluster, from files whose passwords are in the environment (X2)."""

from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest

from odradek.pipelines.config.parsing import load_pipeline
from odradek.pipelines.runner import run_pipelines
from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(600)]

PASSWORD: Final = "geheim-und-streng"
VARIABLE: Final = "PASSWORD_OF_ALICE"
REAL_TIME: Final = """
kind = "real_time"
checkpoint = "state"
sql = "SELECT key, upper(CAST(value AS STRING)) AS value FROM orders"
[trigger]
available_now = true
[streams.orders]
topics = ["orders"]
[source]
bootstrap_servers = "{servers}"
kafka = {{ {login} }}
[sink]
format = "odradek"
bootstrap_servers = "{servers}"
topic = "upper"
options = {{ {sink_login} }}
"""
OFFLINE: Final = """
kind = "offline"
checkpoint = "state"
sql = "SELECT CAST(value AS STRING) AS value FROM orders"
[streams.orders]
topics = ["orders"]
[source]
bootstrap_servers = "{servers}"
kafka = {{ {login} }}
[sink]
path = "archive"
"""
MIRROR: Final = """
kind = "mirror"
checkpoint = "state"
[trigger]
available_now = true
[source]
bootstrap_servers = "{servers}"
topics = ["orders"]
kafka = {{ {login} }}
[target]
bootstrap_servers = "{servers}"
topic_prefix = "copy."
kafka = {{ {login} }}
"""


def plans(spark: Any) -> str:
    """Return all that Spark's UI shows of the queries: their descriptions, plans and changed configurations."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    assert executions.size() > 0
    every = [executions.apply(number) for number in range(executions.size())]
    shown = [(each.description(), each.details(), each.physicalPlanDescription()) for each in every]
    return repr(shown + [each.modifiedConfigs().toString() for each in every])


def test_pipelines_reach_a_secured_cluster_and_write_no_password(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    caplog.set_level("DEBUG", "odradek")
    with Cluster(security="sasl_ssl", users={"alice": PASSWORD}) as cluster:
        given = cluster.settings("alice", mechanism="SCRAM-SHA-512") | {"sasl_password": f"${{env:{VARIABLE}}}"}
        servers = given.pop("bootstrap_servers")
        keys = {key.replace("_", "."): value for key, value in given.items()}
        names = {
            "servers": servers,
            "login": ", ".join(f'"{key}" = "{value}"' for key, value in keys.items()),
            "sink_login": ", ".join(f'"kafka.{key}" = "{value}"' for key, value in keys.items()),
        }
        cluster.create_topic("orders", partitions=2)
        with cluster.producer() as producer:
            for number in range(20):
                producer.send("orders", b"order %d" % number, partition=number % 2).result()
        jobs = []
        for kind, text in {"real_time": REAL_TIME, "offline": OFFLINE, "mirror": MIRROR}.items():
            file = tmp_path / kind / f"{kind}.toml"
            file.parent.mkdir()
            file.write_text(text.format(**names))
            jobs.append(load_pipeline(file))
        statuses = run_pipelines(spark, jobs)
        figures = {each.kind: (each.figures.records_in, each.figures.records_out) for each in statuses}
        assert figures == dict.fromkeys(("real_time", "offline", "mirror"), (20, 20))
        archive = ds.dataset(tmp_path / "offline" / "archive", format="parquet").to_table().to_pylist()
        assert sorted(row["value"] for row in archive) == sorted(f"order {number}" for number in range(20))
        for topic, first in (("upper", b"ORDER 0"), ("copy.orders", b"order 0")):
            with cluster.consumer(topic) as consumer:
                values = [next(consumer).value or b"" for _ in range(20)]
            assert sorted(values)[0] == first
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > len(jobs)
    assert not any(PASSWORD.encode() in content for content in written)
    shown = [plans(spark), repr(jobs), repr(statuses), caplog.text, *capfd.readouterr()]
    assert not any(PASSWORD in text for text in shown)
