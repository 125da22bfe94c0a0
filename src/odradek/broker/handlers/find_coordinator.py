"""FindCoordinator: the broker that coordinates a group or a transactional id. Any broker serves it.

The first request creates `__consumer_offsets` or `__transaction_state`. A share group gets INVALID_REQUEST, as from a
Kafka broker without share groups. Versions: 1 error message and key type, 4 many keys (KIP-699), 5
TRANSACTION_ABORTABLE (KIP-890), 6 share groups (KIP-932).
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.metadata.image import BrokerImage
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest as Message

_GROUP: Final = 0
_TRANSACTION: Final = 1
_MANY_FROM: Final = 4


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the coordinator of each key.

    COORDINATOR_NOT_AVAILABLE if the internal topic cannot be created, or its partition has no reachable leader.
    """
    key_type = optional(message, "key_type", _GROUP)
    if context.api_version < _MANY_FROM:
        return await _find(broker, context, optional(message, "key", ""), key_type)
    found = [await _find(broker, context, key, key_type) async for key in cooperatively(message.coordinator_keys)]
    return {"coordinators": found}


async def _find(broker: BrokerParts, context: RequestContext, key: str, key_type: int) -> dict[str, object]:
    try:
        leader = await _coordinator(broker, context, key, key_type)
        endpoint = leader.endpoint(context.listener)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.coordinator_not_available, f"broker {leader.broker_id} has no listener {context.listener}"
            )
    except KafkaError as error:
        return {
            "key": key,
            "error_code": error.code,
            "error_message": error.message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    return {
        "key": key,
        "error_message": None,
        "node_id": leader.broker_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


async def _coordinator(broker: BrokerParts, context: RequestContext, key: str, key_type: int) -> BrokerImage:
    if key_type == _GROUP:
        context.check(AclOperation.DESCRIBE, ResourceType.GROUP, key)
        return await broker.groups.find_coordinator(key)
    if key_type == _TRANSACTION:
        context.check(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        return await broker.transactions.runtime.find_coordinator(key)
    raise KafkaError(ErrorCode.invalid_request)
