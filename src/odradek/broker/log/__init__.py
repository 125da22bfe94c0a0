"""An ordered, durable log for each partition, in Kafka's file formats.

`log` has `Log`, one partition's log with its offsets, `log_writer` the `LogWriter` that writes and syncs it and handles
failures of both, by the jobs in `pending_writes` and `flush_job`. A batch is a view of the network buffer: it gets its
offset in place and is written without a copy, with the other batches of the same turn (`write_scheduler`).

`directories` has `LogManager`, all logs of a broker; `recovery` opens a log, `segments` has its segment files,
`checkpoints` the text files beside them, `producers` the idempotent producers, `cleaner` compaction.
"""
