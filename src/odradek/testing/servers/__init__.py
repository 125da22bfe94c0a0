"""Odradek and ZooKeeper servers as separate processes, which a test can stop, pause and kill."""
