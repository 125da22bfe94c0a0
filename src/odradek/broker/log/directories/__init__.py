"""A broker's data directories, and `LogManager` (`log_manager`), which has all logs in them.

`log_status` is the table of the logs that cannot be used.
"""
