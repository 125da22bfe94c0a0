"""A broker's image of the cluster, from the metadata tree and from the controller's commands.

`metadata_loop` reads the tree, keeps the `cluster_view` and runs the `job_queue`; in `controller_election` a broker
becomes the controller (`broker.controlling`, which elects the leaders of partitions). `controller_command_handler`
receives `controller_commands`, and `image_updates` makes the next image from them.
"""
