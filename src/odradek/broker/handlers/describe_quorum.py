"""DescribeQuorum: the controller as leader and the live brokers as voters, for tools that look at a quorum (KIP-595).

There is no quorum: metadata is in the tree, which every broker reads, so no voter lags and a voter more or less decides
nothing. Every offset is the controller's epoch. Versions: 1 times of voters, 2 their directories and endpoints, and
texts of errors (KIP-853).
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.model import ErrorCode
from odradek.model.names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest as Message

_NOT_HERE: Final = "This server does not host this topic-partition."


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return the controller and the brokers, or UNKNOWN_TOPIC_OR_PARTITION for any other partition."""
    image = broker.image
    epoch, now_ms = image.controller_epoch, broker.runtime.clock.now_ms()
    voters = [
        {
            "replica_id": each,
            "replica_directory_id": None,
            "log_end_offset": epoch,
            "last_fetch_timestamp": now_ms,
            "last_caught_up_timestamp": now_ms,
        }
        for each in sorted(image.brokers)
    ]
    described: dict[str, object] = {
        "leader_id": image.controller_id,
        "leader_epoch": epoch,
        "high_watermark": epoch,
        "current_voters": voters,
        "observers": [],
    }
    unknown: dict[str, object] = {
        "error_code": ErrorCode.unknown_topic_or_partition,
        "error_message": _NOT_HERE,
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [],
        "observers": [],
    }
    topics: list[dict[str, object]] = []
    for topic in message.topics:
        partitions: list[dict[str, object]] = []
        for each in topic.partitions:
            is_hosted = (topic.topic_name, each.partition_index) == (CLUSTER_METADATA_TOPIC, 0)
            fields: dict[str, object] = {"partition_index": each.partition_index, "error_message": ""}
            partitions.append(fields | (described if is_hosted else unknown))
            yield 1
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
        yield 1
    nodes = [
        {"node_id": each.broker_id, "listeners": [{"name": context.listener, "host": at.host, "port": at.port}]}
        for _, each in sorted(image.brokers.items())
        if (at := each.endpoint(context.listener)) is not None
    ]
    return {"error_code": ErrorCode.none, "error_message": "", "topics": topics, "nodes": nodes}
