"""The elected controller: `machine` decides, `controller_epoch` writes the tree, `controller_channel_manager` sends it.

Requests become jobs of the metadata loop (`*_jobs`); `tasks` are the controller's own work.
"""
