"""Blocks of producer ids: a broker writes to the tree once per thousand producers (KIP-98)."""

from typing import Final

from odradek.metadata.nodes import ProducerIdBlockNode
from odradek.model import ErrorCode, KafkaError

PRODUCER_ID_BLOCK_SIZE: Final = 1_000
_LAST_PRODUCER_ID: Final = 2**63 - 1


def next_producer_id_block(latest: ProducerIdBlockNode | None, broker_id: int) -> ProducerIdBlockNode:
    """Return the block after `latest`, for this broker. Raises `KafkaError` when all 2**63 ids are used up."""
    first = 0 if latest is None else latest.last + 1
    if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.unknown_server_error, "there are no producer ids left in this cluster")
    return ProducerIdBlockNode(broker_id=broker_id, first=first, last=first + PRODUCER_ID_BLOCK_SIZE - 1)
