"""A broker's membership of its cluster: registration, the metadata loop, the controller's commands, other brokers.

`metadata_loop` reads the tree, keeps the `cluster_view` and runs the `job_queue`; `controller_election` is how a broker
becomes the controller (`broker.controlling`, which elects the leaders of partitions). `broker_session` keeps the
`registration` in the tree, which waits for `unclean_registration` where logs may have lost their ends; `directories`
compares the data directories with those in the tree; `fencing` closes when the session may be over.
`controller_command_handler` receives `controller_commands`, and `image_updates` makes the next image from them.
`broker_connections`, `inter_broker_requests` and `controller_requests` send requests. `log_dir_events` notifies the
controller (`controlling.tasks.log_dir_events`) that logs of this broker stopped or came back, `controlled_shutdown`
moves leaders before a broker stops, and `counted_store` counts operations on the tree.
"""
