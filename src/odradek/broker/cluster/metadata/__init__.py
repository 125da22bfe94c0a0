"""Keeps a broker's cluster image up to date, from the metadata tree and the controller's commands.

`metadata_loop` is the task that does so; `image_updates` computes the next image from a command.
"""
