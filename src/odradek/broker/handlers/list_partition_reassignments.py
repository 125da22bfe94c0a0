"""ListPartitionReassignments: the partitions that are being reassigned, with their replicas (KIP-455).

Only the controller serves it. Partitions that are not being reassigned, or do not exist, are left out.
"""

from typing import TYPE_CHECKING

from odradek.broker.controller.machine.reassignment import Assignment, reassignments
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, light
from odradek.model import ErrorCode, KafkaError, TopicPartition

if TYPE_CHECKING:
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the reassignments of the requested partitions, or all if the topics are null."""
    del context
    wanted: dict[str, set[int]] | None = None
    if message.topics is not None:
        wanted = {}
        async for topic in cooperatively(message.topics, light):
            wanted.setdefault(topic.name, set()).update(topic.partition_indexes)
    try:
        controller = broker.controller

        async def find(_: object) -> dict[TopicPartition, Assignment]:
            return reassignments(controller.view.image, wanted)

        found = await controller.do(find)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "topics": []}
    topics: dict[str, list[dict[str, object]]] = {}
    async for key, assignment in cooperatively(found.items(), light):
        topics.setdefault(key.topic, []).append(
            {
                "partition_index": key.partition,
                "replicas": assignment.replicas,
                "adding_replicas": assignment.adding,
                "removing_replicas": assignment.removing,
            }
        )
    listed = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"error_code": ErrorCode.none, "error_message": None, "topics": listed}
