"""AlterPartitionReassignments: assign other replicas to partitions, or cancel a reassignment (KIP-455).

Only the controller serves it. The response is sent when the reassignments have begun; ListPartitionReassignments
returns their progress. Null `replicas` cancel a reassignment. Version 1 can forbid to change the replication factor
(KIP-860).
"""

from typing import TYPE_CHECKING

from odradek.broker.controller import jobs
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, light
from odradek.metadata.cluster_load import Replicas
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per partition, INVALID_REQUEST if named twice; NOT_CONTROLLER is the request's error."""
    del context
    any_factor = optional(message, "allow_replication_factor_change", True)
    targets: dict[TopicPartition, Replicas | None] = {}
    twice = set()
    entries = ((topic.name, each) for topic in message.topics for each in topic.partitions)
    async for name, each in cooperatively(entries, lambda entry: 1 + len(entry[1].replicas or ())):
        key = TopicPartition(name, each.partition_index)
        if key in targets:
            twice.add(key)
        targets[key] = None if each.replicas is None else tuple(each.replicas)
    wanted = {key: target for key, target in targets.items() if key not in twice}
    answer: dict[str, object] = {"allow_replication_factor_change": any_factor}
    try:
        controller = broker.controller
        errors = await controller.do(
            lambda epoch: jobs.alter_reassignments(epoch, wanted, allow_replication_factor_change=any_factor)
        )
    except KafkaError as error:
        return answer | {"error_code": error.code, "error_message": error.message, "responses": []}
    errors |= {
        key: KafkaError(ErrorCode.invalid_request, f"the request names {key.topic}-{key.partition} twice")
        for key in twice
    }
    topics: dict[str, list[dict[str, object]]] = {}
    async for key in cooperatively(targets, light):
        refused = errors.get(key)
        topics.setdefault(key.topic, []).append(
            {
                "partition_index": key.partition,
                "error_code": ErrorCode.none if refused is None else refused.code,
                "error_message": None if refused is None else refused.message,
            }
        )
    responses = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return answer | {"error_code": ErrorCode.none, "error_message": None, "responses": responses}
