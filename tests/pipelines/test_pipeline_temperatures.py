"""Three pipelines over real hours of two cities, the package vega_datasets: exact results beside restarts (M11).

The values have fields named `timestamp` and `offset`, as every record has, a text instead of a number, and a tombstone.
"""

import csv
import datetime
import importlib.util
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest

from odradek.pipelines import attempts
from odradek.pipelines.attempts import AttemptFailedError, QueryAttempt
from odradek.pipelines.config.pipelines import QueryPipeline
from odradek.pipelines.progress import Figures
from odradek.pipelines.status import State
from odradek.testing.conditions import eventually
from tests.pipelines.scene import Scene

FOUND: Final = importlib.util.find_spec("vega_datasets")

pytestmark = [
    pytest.mark.needs("java"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(FOUND is None, reason="pip install --no-deps vega_datasets"),
]

HOURS: Final = 2_000
"""Of each city: several batches, and three months."""

Hour = tuple[datetime.datetime, float]

REAL_TIME = """
kind = "real_time"
name = "{sf}.days"
checkpoint = "days.state"
on_bad_row = "null"
sql = \"\"\"
SELECT window(f.timestamp, '1 day').start AS day, count(s.temp - f.temp) AS hours,
       round(avg(s.temp - f.temp), 6) AS warmer
FROM sf f JOIN seattle s ON f.timestamp = s.timestamp
  AND s.timestamp >= f.timestamp - INTERVAL 1 HOUR AND s.timestamp <= f.timestamp + INTERVAL 1 HOUR
GROUP BY window(f.timestamp, '1 day')
\"\"\"
[restart]
backoff = "10 milliseconds"
[source]
bootstrap_servers = "{source}"
max_offsets_per_trigger = 1000
[trigger]
available_now = true
[streams.sf]
topics = ["{sf}"]
value = "temp DOUBLE, timestamp STRING"
watermark = "60 days"
[streams.seattle]
topics = ["{seattle}"]
value = "temp DOUBLE, offset INT"
watermark = "60 days"
[sink]
path = "days"
"""

OFFLINE = """
kind = "offline"
name = "{sf}.archive"
checkpoint = "archive.state"
sql = "SELECT temp, value_timestamp AS text, month(timestamp) AS month FROM sf WHERE temp IS NOT NULL"
[source]
bootstrap_servers = "{source}"
[streams.sf]
topics = ["{sf}"]
value = "temp DOUBLE, timestamp STRING"
[sink]
path = "archive"
partition_by = ["month"]
"""

MIRROR = """
kind = "mirror"
name = "{sf}.mirror"
checkpoint = "mirror.state"
[source]
bootstrap_servers = "{source}"
pattern = "{sf}|{seattle}"
[trigger]
available_now = true
[target]
bootstrap_servers = "{target}"
"""


def hours(name: str) -> list[Hour]:
    assert FOUND is not None
    assert FOUND.submodule_search_locations
    path = Path(FOUND.submodule_search_locations[0]) / "_data" / name
    with path.open(encoding="utf-8") as file:
        return [
            (
                datetime.datetime.strptime(row["date"][:16], "%Y/%m/%d %H:%M").replace(tzinfo=datetime.UTC),
                float(row["temp"]),
            )
            for row in itertools.islice(csv.DictReader(file), HOURS)
        ]


def publish(producer: Any, topic: str, rows: list[Hour], field: str) -> None:
    """Writes the hours, then a tombstone and a bad row, and an end that moves the watermark past every window."""
    for number, (at, temp) in enumerate(rows):
        value = {"temp": temp, field: at.isoformat() if field == "timestamp" else number}
        producer.produce(topic, json.dumps(value), partition=number % 3, timestamp=int(at.timestamp() * 1000))
    last = int(rows[-1][0].timestamp() * 1000)
    producer.produce(topic, None, key=b"t", partition=0, timestamp=last + 1)
    producer.produce(topic, b'{"temp": "cold"}', partition=1, timestamp=last + 1)
    for partition in range(3):
        producer.produce(topic, b"{}", partition=partition, timestamp=last + 200 * 86_400_000)
    assert producer.flush(60) == 0


def days(sf: list[Hour], seattle: list[Hour]) -> dict[datetime.datetime, tuple[int, float]]:
    """Return the rows that the real-time pipeline must have."""
    found = defaultdict(list)
    there = defaultdict(list)
    for at, temp in seattle:
        there[at].append(temp)
    for at, temp in sf:
        found[at.replace(hour=0)] += [other - temp for other in there[at]]
    return {day: (len(each), round(sum(each) / len(each), 6)) for day, each in found.items() if each}


def test_two_cities_in_three_pipelines(scene: Scene, producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka.admin import NewTopic

    sf, seattle = f"{scene.topic}-sf", f"{scene.topic}-seattle"
    config = {"retention.ms": "-1"}
    for made in scene.admin.create_topics([NewTopic(name, 3, config=config) for name in (sf, seattle)]).values():
        made.result(30)
    given = {sf: hours("sf-temps.csv"), seattle: hours("seattle-temps.csv")}
    publish(producer, sf, given[sf], "timestamp")
    publish(producer, seattle, given[seattle], "offset")
    _fail_once(monkeypatch, f"{sf}.days")
    statuses = scene.run(MIRROR, OFFLINE, REAL_TIME, sf=sf, seattle=seattle)
    assert [each.state for each in statuses] == [State.DONE] * 3
    mirror, archive, live = statuses
    assert live.restarts == 1
    assert live.figures.batches > 2
    assert archive.figures.records_in == len(given[sf]) + 5
    assert (archive.figures.bad_rows, archive.figures.tombstones) == (1, 1)
    assert mirror.figures.records_out == len(given[sf]) + len(given[seattle]) + 10
    assert {row["day"]: (row["hours"], row["warmer"]) for row in scene.rows("days")} == days(given[sf], given[seattle])
    files = ds.dataset(scene.directory / "archive", format="parquet", partitioning="hive")
    kept = sorted((row["text"], row["temp"]) for row in files.to_table().to_pylist())
    assert kept == sorted((at.isoformat(), temp) for at, temp in given[sf])
    # A directory of a month has one file, however many tasks wrote it.
    assert len(files.files) == len({at.month for at, _ in given[sf]})


def _fail_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Stop a pipeline's first query after a batch of several, as a lost broker or worker would."""
    start, poll = attempts.start_query, QueryAttempt.poll
    stopped: list[Any] = []

    def start_and_stop(spark: Any, pipeline: QueryPipeline, disk: Any) -> Any:
        query = start(spark, pipeline, disk)
        if pipeline.name == name and not stopped:
            eventually(lambda: query.recentProgress, within_s=600, what=f"the first batch of {name}")
            query.stop()
            stopped.append(query)
        return query

    def failing(self: QueryAttempt) -> tuple[Figures, bool]:
        if self._query in stopped:
            self._close()
            raise AttemptFailedError("a worker was lost", details="", is_final=False)
        return poll(self)

    monkeypatch.setattr(attempts, "start_query", start_and_stop)
    monkeypatch.setattr(QueryAttempt, "poll", failing)
