"""Opening a log: loading its files, and after a crash, checking what may be damaged and truncating the log."""
