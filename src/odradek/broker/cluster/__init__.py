"""A broker's membership of its cluster.

`registration` keeps the broker registered in the metadata tree, `metadata` reads the tree and follows the controller's
commands, and `requests` has the requests to other brokers. `log_dir_events` notifies the controller
(`controller.task_log_dir_event_task`) that logs of this broker went offline or came back, and `counted_store` counts
operations on the tree. `config_changes` and `feature_changes` write configurations and features to the tree,
`producer_ids` allocates producer ids, and `broker_loggers` sets levels of loggers.
"""
