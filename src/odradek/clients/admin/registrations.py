"""Describes the brokers of a cluster; lists and unregisters those that are registered but not alive."""

from typing import Any

from odradek.clients.admin.descriptions import BrokerDescription, ClusterDescription
from odradek.clients.cluster import Cluster
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional


async def describe_cluster(cluster: Cluster, *, include_fenced_brokers: bool = False) -> ClusterDescription:
    """Return the controller and the live brokers; `include_fenced_brokers` adds registered brokers not alive."""
    await cluster.refresh(timeout_ms=cluster.timeout_ms)
    metadata = cluster.metadata
    brokers = {
        node.node_id: BrokerDescription(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in metadata.nodes.values()
    }
    if include_fenced_brokers:
        for each in await _fenced_brokers(cluster):
            brokers.setdefault(each.broker_id, each)
    return ClusterDescription(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        brokers=tuple(each for _, each in sorted(brokers.items())),
    )


async def _fenced_brokers(cluster: Cluster) -> list[BrokerDescription]:
    """Return the registered brokers that are not alive (KIP-1073); none if the broker cannot return them."""

    async def attempt() -> Any:
        connection = await cluster.connections.least_loaded()
        if not connection.supports(ApiKey.DESCRIBE_CLUSTER):
            return None
        message = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}
        response = await connection.request(ApiKey.DESCRIBE_CLUSTER, message)
        _raise(response)
        return response

    response = await retrying(cluster, attempt)
    return [
        BrokerDescription(broker_id=each.broker_id, host=each.host, port=each.port, rack=each.rack, is_fenced=True)
        for each in (() if response is None else response.brokers)
        if optional(each, "is_fenced", False)
    ]


async def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Unregister a broker that is permanently gone, so that it gets no replicas (KIP-631).

    Raises `KafkaError` BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST for a broker that is alive.
    """

    async def attempt() -> None:
        connection = await cluster.connections.least_loaded()
        _raise(await connection.request(ApiKey.UNREGISTER_BROKER, {"broker_id": broker_id}))

    await retrying(cluster, attempt)


def _raise(response: Any) -> None:
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or explained(response.error_code))
