"""A broker's data directories and `LogManager` (`log_manager`), which has all logs in them.

`log_directories` locks and checks the directories, and takes those with failed disks offline. At the start
`directory_loading` finds and opens their logs, and `loading_progress` logs the progress; `log_shutdown` closes all.

`missing_logs` decides whether a missing log may be created. `lost_records` has the logs that end before the offsets in
their checkpoints, `unopened_logs` those that are found but not open. `deleted_logs` renames the folders of deleted and
stray logs, `removal` removes a folder.

`maintenance` is one pass of retention, flushes, removals and checkpoints, run periodically by
`broker.replication.replica_manager`. `log_checkpoints` plans the checkpoint files (formats: `broker.log.checkpoints`),
`checkpoint_writer` writes them on any thread. `kraft_metadata` reads the topics
of a Kafka controller, for `broker.cluster.registration.kafka_directories`.
"""
