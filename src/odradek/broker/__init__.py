"""One broker: a room for each concept, with its pure machine, the shell that runs it, and what it remembers.

`lifecycle.Broker` creates all parts, and `interfaces.BrokerParts` types them for `handlers`, one file per API, to which
`serving` passes each request. `security` authenticates, authorizes and limits
clients. `replication` has the partitions that this broker leads or follows, `log` their logs, and `cluster` the
membership of the cluster. `controller` runs only on the elected controller. `groups` and `transactions` are machines on
the runtime of `coordinators`; `observing` serves metrics and probes.

`metadata_cache` has the cluster image and the configuration, `counters` what parts count, and `turns` lets other tasks
run during long loops.
"""
