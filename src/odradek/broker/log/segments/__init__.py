"""A log's segments and their indexes: the files, reading them, and replacing them.

`segment` is one `.log` file with its indexes, `segments` a log's sequence of them,
`segment_swap` replaces some by a compacted one. `offset_index`, `time_index` and `transaction_index` are index files,
based on `index_file`. `index_rebuild` rebuilds the first two when a wrong entry is used;
`broker.log.recovery.log_loader` rebuilds missing ones at the start. `batch_scan` reads a file batch by batch, for
checks and compaction. `old_formats` recognizes messages of formats 0 and 1, `open_files` limits a broker's open log
files.
"""
