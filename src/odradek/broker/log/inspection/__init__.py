"""Reading a log's files for `odradek log dump` and `odradek log verify`, without any write."""
