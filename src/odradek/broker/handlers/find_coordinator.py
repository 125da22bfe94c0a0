"""FindCoordinator: the broker that coordinates a group. Any broker serves it.

The first request creates `__consumer_offsets`. Transactions are not supported yet: a transactional id gets
UNSUPPORTED_VERSION from a client that reports it at once. Others get TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because
librdkafka retries forever after UNSUPPORTED_VERSION. A share group gets INVALID_REQUEST, as from a Kafka broker without
share groups. Versions: 1 error message and key type, 4 many keys (KIP-699), 5 TRANSACTION_ABORTABLE (KIP-890), 6 share
groups (KIP-932).
"""

from typing import Any, Final

from odradek.broker.cooperation import cooperatively
from odradek.broker.groups.group_coordinator import GroupCoordinator
from odradek.broker.parts import HasGroups
from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

_GROUP: Final = 0
_TRANSACTION: Final = 1
_MANY_FROM: Final = 4
_REPORT_ANY_ERROR: Final = ("apache-kafka-java ", "kafka-python ")
"""Beginnings of `client_software` of clients that report any error of a transactional id at once. After a failed
authorization Java does not show the message, and users look for ACLs."""


async def handle(broker: HasGroups, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return the coordinator of each key.

    COORDINATOR_NOT_AVAILABLE if `__consumer_offsets` cannot be created, or its partition has no reachable leader.
    """
    key_type = optional(message, "key_type", _GROUP)
    if context.api_version < _MANY_FROM:
        return await _find(broker.groups, context, message.key, key_type)
    found = [
        await _find(broker.groups, context, key, key_type) async for key in cooperatively(message.coordinator_keys)
    ]
    return {"coordinators": found}


async def _find(groups: GroupCoordinator, context: RequestContext, key: str, key_type: int) -> dict[str, Any]:
    try:
        _check_key(context, key, key_type)
        leader = await groups.find_coordinator(key)
        endpoint = leader.endpoint(context.listener)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.coordinator_not_available, f"broker {leader.broker_id} has no listener {context.listener}"
            )
    except KafkaError as error:
        return {
            "key": key,
            "error_code": error.code,
            "error_message": str(error),
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


def _check_key(context: RequestContext, key: str, key_type: int) -> None:
    if key_type == _GROUP:
        context.check(AclOperation.DESCRIBE, ResourceType.GROUP, key)
    if key_type == _TRANSACTION:
        context.check(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        error = ErrorCode.transactional_id_authorization_failed
        if context.session.client_software.startswith(_REPORT_ANY_ERROR):
            error = ErrorCode.unsupported_version
        raise KafkaError(error, "this release of Odradek has no transactions; remove transactional.id")
    if key_type != _GROUP:
        raise KafkaError(ErrorCode.invalid_request, f"there are no coordinators of type {key_type}")
