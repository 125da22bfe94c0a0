"""Servers in processes of their own, to be stopped, paused and killed: Odradek's and ZooKeeper's."""
