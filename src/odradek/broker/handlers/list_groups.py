"""ListGroups: the groups that this broker coordinates.

Versions: 4 filter by state (KIP-518), 5 filter by type (KIP-848). Filters ignore case; an unknown state or type matches
nothing.
"""

from typing import TYPE_CHECKING

from odradek.broker.groups.machine.group_registry import Group
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.model import KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.list_groups.v5.request import ListGroupsRequest as Message


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return the groups, or COORDINATOR_LOAD_IN_PROGRESS while a partition of `__consumer_offsets` is loading."""
    states = _filter(message, "states_filter")
    types = _filter(message, "types_filter")
    try:
        machines = list(broker.groups.machines())
    except KafkaError as error:
        return {"error_code": error.code, "groups": []}
    groups = [
        group for machine in machines for group in machine.groups.by_id.values() if not types or group.kind in types
    ]
    if not context.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, quietly=True):
        ids = (group.group_id for group in groups)
        denied = yield from context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, ids, quietly=True)
        groups = [group for group in groups if group.group_id not in denied]
    listed = []
    for group in groups:
        if not states or group.state.lower() in states:
            listed.append(_listed(group))
        yield 1
    return {"groups": listed}


def _filter(message: "Message", field: str) -> set[str]:
    words: tuple[str, ...] = optional(message, field, ())
    return {word.strip().lower() for word in words}


def _listed(group: Group) -> dict[str, object]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type or "",
        "group_state": group.state,
        "group_type": group.kind,
    }
