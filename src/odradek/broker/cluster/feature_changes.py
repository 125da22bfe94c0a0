"""Changes the finalized features in the metadata tree (KIP-584), on any broker."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from odradek.metadata import paths
from odradek.metadata.feature_node import FinalizedFeatures
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.store import BadVersion, Create, NodeExists, NoNode, Operation, SetData, Store
from odradek.model import ErrorCode, KafkaError

FeatureChange = Callable[[Mapping[str, int]], Mapping[str, int]]
"""A function from the finalized levels to the new ones, which may raise `KafkaError`. It may be called repeatedly."""
_log = logging.getLogger("odradek.broker")
_ATTEMPTS: Final = 10
"""Limit of attempts to write one change despite concurrent writes."""


async def write_features(store: Store, change: FeatureChange) -> None:
    """Write the changed levels of `/feature`. Raises `KafkaError`, also if the node is broken."""
    path = paths.FEATURE
    for _ in range(_ATTEMPTS):
        node = await store.get(path)
        try:
            before = (
                FinalizedFeatures()
                if node is None
                else FinalizedFeatures.decode(path, node.data, node_version=node.version)
            )
        except BrokenNodeError as error:
            raise KafkaError(ErrorCode.feature_update_failed, f"{error}; correct or delete the node") from error
        after = change(before.levels)
        if after == before.levels:
            return
        data = FinalizedFeatures(levels=after).encode()
        write: Operation = (
            Create(path=path, data=data) if node is None else SetData(path=path, data=data, version=node.version)
        )
        try:
            await store.multi([write])
        except (BadVersion, NodeExists, NoNode):
            continue
        _log.info("Finalized feature levels: %s", ", ".join(f"{name}={level}" for name, level in after.items()))
        return
    raise KafkaError(ErrorCode.request_timed_out, f"{path} is changed concurrently again and again")
