"""A snapshot that removes files, as pyiceberg writes it, but without empty manifests, and with merged small ones.

pyiceberg keeps each manifest of removed files in all later snapshots, and merges manifests only when it appends, so a
table would have two manifests more after each batch of upserts.
"""

from typing import Any

from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles


class _Overwrite(_OverwriteFiles, _MergeAppendFiles):  # type: ignore[misc]
    """Files are removed as by the first base, manifests merged as by the second one."""

    def _process_manifests(self, manifests: list[Any]) -> list[Any]:
        needed = [
            each
            for each in manifests
            if each.has_added_files() or each.has_existing_files() or each.added_snapshot_id == self.snapshot_id
        ]
        return super()._process_manifests(needed)  # type: ignore[no-any-return]


def overwrite(transaction: Any, io: Any, snapshot_properties: dict[str, str] | None = None) -> Any:
    """Return the update of a snapshot that may remove files; its `with` block stages it."""
    return _Overwrite(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=io,
        snapshot_properties=snapshot_properties or {},
    )
