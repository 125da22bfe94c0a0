"""DescribeCluster: the cluster's id, controller and brokers (KIP-700).

Versions: 1 selects brokers or controllers (KIP-919), 2 can include fenced (here: dead) brokers (KIP-1073).
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext, cluster_operations
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import NOT_ASKED_FOR

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest as Message

_BROKERS: Final = 1
_CONTROLLERS: Final = 2

_NO_CONTROLLERS: Final = (
    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
)


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the brokers; MISMATCHED_ENDPOINT_TYPE for controllers, which have no listeners of their own."""
    endpoint_type = optional(message, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        known = endpoint_type == _CONTROLLERS
        return {
            "error_code": ErrorCode.mismatched_endpoint_type if known else ErrorCode.unsupported_endpoint_type,
            "error_message": _NO_CONTROLLERS if known else f"Unsupported endpoint type {endpoint_type}",
            "cluster_id": "",
            "brokers": [],
        }
    image = broker.image
    brokers = image.brokers
    if optional(message, "include_fenced_brokers", False):
        try:
            brokers = await broker.metadata_loop.registered_brokers()
        except KafkaError as error:
            return {"error_code": error.code, "error_message": error.message, "cluster_id": "", "brokers": []}
    endpoints = [(each, each.endpoint(context.listener)) for _, each in sorted(brokers.items())]
    return {
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": [
            {
                "broker_id": each.broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": each.rack,
                "is_fenced": each.broker_id not in image.brokers,
            }
            for each, endpoint in endpoints
            if endpoint is not None
        ],
        "cluster_authorized_operations": cluster_operations(context)
        if message.include_cluster_authorized_operations
        else NOT_ASKED_FOR,
    }
