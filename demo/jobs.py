"""The three pipelines of the demo, as TOML files for `odradek pipeline run`."""

from pathlib import Path
from typing import Final

from demo.source import FLIGHTS, WEATHER
from odradek.pipelines.config.parsing import load_pipeline
from odradek.pipelines.config.pipelines import AnyPipeline

WATERMARK: Final = "10 days"
"""Batches read a year from several partitions, whose timestamps are up to four days apart (measured)."""

_REAL_TIME: Final = '''
kind = "real_time"
name = "delays"
checkpoint = "state/delays"
sql = """
SELECT window(f.timestamp, '1 hour').start AS hour,
       f.carrier,
       count(*) AS flights,
       count(f.dep_delay) AS departed,
       coalesce(sum(f.dep_delay), 0) AS delay_minutes,
       avg(w.wind_speed) AS mean_wind
FROM flights f JOIN weather w
  ON f.origin = w.origin AND date_trunc('hour', f.timestamp) = w.timestamp
  AND w.timestamp <= f.timestamp AND w.timestamp > f.timestamp - INTERVAL 1 HOUR
GROUP BY window(f.timestamp, '1 hour'), f.carrier
"""
[source]
bootstrap_servers = "{source}"
max_offsets_per_trigger = {batch}
[trigger]
available_now = true
[streams.flights]
topics = ["{flights}"]
value = "carrier STRING, origin STRING, dep_delay INT"
watermark = "{watermark}"
[streams.weather]
topics = ["{weather}"]
value = "origin STRING, wind_speed DOUBLE"
watermark = "{watermark}"
[sink]
path = "out/delays"
'''

_OFFLINE: Final = '''
kind = "offline"
name = "archive"
checkpoint = "state/archive"
sql = "SELECT * FROM flights WHERE carrier IS NOT NULL"
[source]
bootstrap_servers = "{source}"
consume_mode = "group"
[streams.flights]
topics = ["{flights}"]
value = """month INT, day INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
dep_delay INT, arr_delay INT, air_time INT, distance INT, time_hour TIMESTAMP"""
[sink]
path = "out/archive"
partition_by = ["month"]
'''

_MIRROR: Final = """
kind = "mirror"
name = "mirror"
guarantee = "exactly_once"
checkpoint = "state/mirror"
[source]
bootstrap_servers = "{source}"
topics = ["{flights}", "{weather}"]
[trigger]
available_now = true
[target]
bootstrap_servers = "{target}"
kafka = {{ "compression.type" = "lz4" }}
"""


def write_jobs(directory: Path, *, source: str, target: str, batch: int) -> list[AnyPipeline]:
    """Write the three files, and load them. The pipelines write their results to `directory / "out"`."""
    names = {"flights": FLIGHTS, "weather": WEATHER, "watermark": WATERMARK}
    jobs = []
    for name, text in (("delays", _REAL_TIME), ("archive", _OFFLINE), ("mirror", _MIRROR)):
        path = directory / f"{name}.toml"
        path.write_text(text.format(source=source, target=target, batch=batch, **names))
        jobs.append(load_pipeline(path))
    return jobs
