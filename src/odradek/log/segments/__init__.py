"""A log's segments and their indexes: the files, reading them, and replacing them.

`segment` is one `.log` file with its indexes, `segments` has those of a log in order, `segment_reader` reads across
them, and `segment_swap` replaces some by a compacted one. `offset_index`, `time_index` and `transaction_index` are the
index files, each an `index_file`. `index_rebuild` makes the first two anew when an entry that is used is wrong; one
that a finished segment lacks is noticed at the start (`log.recovery.log_loader`). `batch_scan` reads a file batch by
batch, for checks and compaction. `old_formats` recognizes messages of the formats 0 and 1, and `open_files` limits how
many files of a broker's logs are open.
"""
