"""Reading a log's files for `odradek log dump` and `odradek log verify`, without any write.

`file_contents` and `internal_records` decode files for `dump`; `verification` runs the checks of partitions, segments
and transactions, which return `findings`.
"""
