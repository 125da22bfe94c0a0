"""OffsetForLeaderEpoch: the end offset of a leader epoch, with which followers and consumers find where logs diverge.

The response has the largest known epoch up to the requested one, and the offset at which the next epoch began (KIP-101,
KIP-279, KIP-320). Appended records that are not written yet do not count, as no follower has them. Versions: 2 the
leader epoch that the client knows, 3 the replica id.
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest as Message
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderPartition

_UNDEFINED: Final = -1


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return one result per partition; epoch and end offset are -1 for an epoch after the leader's."""
    may_read_all = context.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, quietly=True)
    names = () if may_read_all else (topic.topic for topic in message.topics)
    denied = yield from context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    topics = []
    for topic in message.topics:
        partitions: list[dict[str, object]] = []
        for wanted in topic.partitions:
            if topic.topic in denied:
                partitions.append(
                    {
                        "error_code": ErrorCode.topic_authorization_failed,
                        "partition": wanted.partition,
                    }
                )
            else:
                partitions.append(_end_of_epoch(broker.partitions, topic.topic, wanted))
            yield 1
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _end_of_epoch(partitions: ReplicaManager, topic: str, wanted: "OffsetForLeaderPartition") -> dict[str, object]:
    try:
        partition = partitions.leader(topic, wanted.partition)
        partition.check_leader_epoch(optional(wanted, "current_leader_epoch", _UNDEFINED))
    except KafkaError as error:
        return {"error_code": error.code, "partition": wanted.partition}
    epochs, end_offset = partition.log.epochs, partition.log.written_offset
    epoch = wanted.leader_epoch
    if epochs.latest < epoch <= partition.leader_epoch:
        # Nothing was written in this epoch yet: its first record will be at the end of the log.
        found = epoch if epoch == partition.leader_epoch or epochs.latest == _UNDEFINED else epochs.latest
    else:
        found, end_offset = epochs.end_offset(epoch, end_offset)
    return {"partition": wanted.partition, "leader_epoch": found, "end_offset": end_offset}
