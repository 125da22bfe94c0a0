"""One broker: its lifecycle, request handlers, partitions, coordinators, controller and cluster membership.

`lifecycle.Broker` creates all parts. `serving` passes each request to its handler; `handlers` has one file per API. A
handler's signature names the protocols of `parts` that it uses. `replication` has the partitions that this broker leads
or follows, and `cluster` its membership of the cluster. `controlling` runs only on the elected controller, `groups`
coordinates consumer groups, and `observing` serves metrics and probes.

`metadata_cache` has the cluster image and the configuration. `cleaner_workers` runs compaction, `producer_ids`
allocates producer ids, and `auto_topic_creation_manager` creates topics that requests need. `config_resources`
describes and alters configurations, and `config_changes` writes them to the metadata tree. `cooperation` lets other
tasks run during long loops. `adoption` imports a data directory of Kafka for `odradek metadata adopt`.
"""
