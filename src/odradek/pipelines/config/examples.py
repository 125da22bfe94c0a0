"""An example file of each kind, printed by `odradek pipeline example`. docs/spark.md lists all keys."""

from typing import Final

_REAL_TIME: Final = '''\
# A continuous query: delays per airline and hour, with the weather at departure.
kind = "real_time"
name = "delays"                       # also the consumer group whose lag shows how far it has come
checkpoint = "state/delays"           # offsets and state; relative to this file, as all paths are

sql = """
SELECT window(f.timestamp, '1 hour').start AS hour,
       f.carrier,
       count(*) AS flights,
       avg(f.dep_delay) AS mean_delay,
       avg(w.wind_speed) AS mean_wind
FROM flights f JOIN weather w
  ON f.origin = w.origin AND date_trunc('hour', f.timestamp) = w.timestamp
  -- An equality alone would keep every record for ever: by this, Spark knows what it may forget.
  AND w.timestamp <= f.timestamp AND w.timestamp > f.timestamp - INTERVAL 1 HOUR
GROUP BY window(f.timestamp, '1 hour'), f.carrier
"""

[source]
bootstrap_servers = "localhost:9092"
starting_offsets = "earliest"         # for its first start; then the checkpoint knows
max_offsets_per_trigger = 100000

[trigger]
interval = "5 seconds"

[streams.flights]                     # a view for the query; timestamp is the record's
topics = ["flights"]
value = "carrier STRING, origin STRING, dep_delay DOUBLE"   # fields of the JSON value
watermark = "1 hour"                  # how much later than the others a record may come

[streams.weather]
topics = ["weather"]
value = "origin STRING, wind_speed DOUBLE"
watermark = "1 hour"

[sink]
format = "parquet"
path = "out/delays"
'''

_OFFLINE: Final = """\
# The present records of the topic, as files; run again, it adds newer ones.
kind = "offline"
name = "archive"
checkpoint = "state/archive"

sql = "SELECT *, date(timestamp) AS day FROM flights"

[source]
bootstrap_servers = "localhost:9092"
consume_mode = "direct"               # or "group": pipelines of one group share the topics

[streams.flights]
topics = ["flights"]
value = "carrier STRING, origin STRING, dep_delay DOUBLE"

[sink]
format = "parquet"
path = "out/archive"
partition_by = ["day"]
"""

_TABLE: Final = """\
# A topic as an Iceberg table: each record once, also after crashes, and read by DuckDB, Polars, pyiceberg and others.
kind = "real_time"
name = "orders"                       # the table keeps this pipeline's progress under its name
checkpoint = "state/orders"

# With partition and offset, `odradek table check out/orders --topic orders` compares table and topic.
sql = "SELECT partition, offset, timestamp, key, id, item, amount FROM orders"

[source]
bootstrap_servers = "localhost:9092"

[trigger]
interval = "10 seconds"               # a snapshot of the table for each batch

[streams.orders]
topics = ["orders"]
value = "id BIGINT, item STRING, amount DOUBLE"

[sink]
format = "odradek_iceberg"
path = "out/orders"                   # or table = "sales.orders" and options = { "catalog.uri" = "…" }
partition_by = ["day(timestamp)"]     # a folder a day; also bucket(16, key), truncate(4, item), a column
"""

_MIRROR: Final = """\
# Topics to the same topics of another cluster: every key, value, header, timestamp and partition.
kind = "mirror"
name = "mirror"
checkpoint = "state/mirror"
guarantee = "exactly_once"            # or "at_least_once": faster, but a crash may copy records again

[source]
bootstrap_servers = "localhost:9092"
topics = ["flights", "weather"]       # or pattern = "flights-.*"

[target]
bootstrap_servers = "elsewhere:9092"
kafka = { "compression.type" = "zstd" }
"""

EXAMPLES: Final = {"real_time": _REAL_TIME, "offline": _OFFLINE, "table": _TABLE, "mirror": _MIRROR}
"""The text of an example file, by kind; `table` is a `real_time` one."""
