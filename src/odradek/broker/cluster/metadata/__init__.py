"""Keeps a broker's cluster image up to date, from the metadata tree and the controller's commands.

`metadata_loop` reads the tree, updates the `cluster_view` and runs the `job_queue`; by `controller_election` a broker
becomes the controller (`broker.controller`, which elects the leaders of partitions). `controller_command_handler`
handles UpdateMetadata (`controller_commands`), and `image_updates` computes the next image from it.
"""
