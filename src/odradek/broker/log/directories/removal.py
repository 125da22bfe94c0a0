"""Removal of a log's folder."""

from odradek.runtime import Disk


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and the files in it, if it exists. Raises `OSError`."""
    if not disk.exists(path):
        return
    for name in disk.list(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)
