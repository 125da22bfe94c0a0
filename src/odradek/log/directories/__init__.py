"""A broker's data directories, with `LogManager` (`log_manager`) over all logs in them.

At the start `log_directories` locks and checks the directories, `directory_loading` finds their logs and opens each,
and `loading_progress` logs how far it is; `log_shutdown` closes all logs. `log_directories` also knows the directories
whose disks have failed.

`missing_logs` decides whether a log that is not found may be created empty. `lost_records` has the logs that end before
the offsets in their checkpoints, `unopened_logs` those that are found and not open. `deleted_logs` renames the folders
of deleted and stray logs, and `removal` removes a folder.

`maintenance` is one pass of retention, flushes, removals and checkpoints, which `broker.replication.replica_manager`
runs periodically. `log_checkpoints` plans the checkpoint files (formats: `log.checkpoints`), `checkpoint_contents` is
their content, `checkpoint_writer` writes them on any thread. `kraft_metadata` reads the topics of a Kafka controller,
for `broker.adoption`.
"""
