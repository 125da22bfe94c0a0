"""One broker: its lifecycle, its requests, its partitions, its place in the cluster.

`lifecycle.Broker` creates all parts. `serving` brings a request to its handler, of which `handlers` has one file per
API; the protocols of `parts` say in its signature which parts of the broker it uses. `replication` has the partitions
that this broker leads or follows, and `cluster` its membership of the cluster. `controlling` exists only on the elected
controller, `groups` coordinates consumer groups, and `observing` serves metrics and probes. Produce and Fetch are plain
calls from the socket to the log; other handlers may be coroutines.

`metadata_cache` has the image and the configuration, for all rooms. `cleaner_workers` runs compaction, `producer_ids`
allocates producer ids, and `auto_topic_creation_manager` creates topics that requests need. `config_resources`
describes and alters configurations for handlers, and `config_changes` writes them to the tree. `cooperation` iterates
with pauses for other tasks. `adoption` takes over a data directory of Kafka for `odradek metadata adopt`.
"""
