"""A broker's membership of its cluster.

`registration` keeps the broker in the metadata tree while it lives, `metadata` reads the tree and follows the
controller's commands, and `requests` has the connections to other brokers. `log_dir_events` notifies the controller
(`controlling.tasks.log_dir_events`) that logs of this broker stopped or came back, and `counted_store` counts
operations on the tree.
"""
