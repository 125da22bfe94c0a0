"""Reading a log's files for `odradek log dump` and `odradek log verify`. Nothing here writes.

`file_contents` and `internal_records` print; `verification` calls the checks of partitions, segments and transactions,
which return `findings`.
"""
