"""Reading a log's files for people: `odradek log dump` and `odradek log verify`. Nothing here writes."""
