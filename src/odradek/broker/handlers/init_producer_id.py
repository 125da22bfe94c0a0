"""InitProducerId: an id for an idempotent producer, with epoch 0 (KIP-98).

A null transactional id always gets a new producer id (KIP-360). Transactions are not supported yet: a transactional id
gets UNSUPPORTED_VERSION, which clients treat as fatal. Versions: 3 the producer's old id, 4 PRODUCER_FENCED, 5
TRANSACTION_ABORTABLE (KIP-890); 6 is two-phase commit and not served.
"""

import logging
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, OdradekError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.producer_ids import ProducerIds


class _Broker(Protocol):
    @property
    def producer_ids(self) -> "ProducerIds": ...


_log = logging.getLogger("odradek.broker")


async def handle(broker: _Broker, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return a producer id; COORDINATOR_NOT_AVAILABLE, which clients retry, if none can be allocated."""
    if message.transactional_id is not None:
        if not message.transactional_id:
            return _failure(ErrorCode.invalid_request)
        if not context.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
            return _failure(ErrorCode.transactional_id_authorization_failed)
        _log.info(
            "Refusing the transactional id %r of client %s: transactions are not supported",
            message.transactional_id,
            context.client_id,
        )
        return _failure(ErrorCode.unsupported_version)
    if not context.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, quietly=True) and not context.allows_any(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        return _failure(ErrorCode.cluster_authorization_failed)
    try:
        producer_id = await broker.producer_ids.take()
    except OdradekError as error:
        _log.warning("Failed to allocate a producer id: %s", error)
        return _failure(ErrorCode.coordinator_not_available)
    return {"producer_id": producer_id, "producer_epoch": 0}


def _failure(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
