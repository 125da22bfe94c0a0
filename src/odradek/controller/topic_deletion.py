"""Topic deletion: the remaining operations, in an order that the next controller can continue at any point.

The request is a node below `/admin/delete_topics`. It is deleted last, together with the topic's own node: as long as
anything of the topic is there, so is the request.

Brokers that are away keep their replicas. The transaction that deletes the topic creates a node for each of them, with
the topic's id; such a broker deletes its logs of this id when it is back, and then the node (`broker.replication`).
"""

from collections.abc import Collection, Iterator
from uuid import UUID

from odradek.metadata import paths
from odradek.metadata.image import UNNAMED
from odradek.metadata.store import Create, Delete, Operation
from odradek.model import KafkaError
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletion:
    """The result of a request to delete a topic, by name or by id; the topic is deleted if there is no error."""

    name: str | None
    topic_id: UUID | None
    error: KafkaError | None = None


def deletion_operations(
    name: str, existing: Collection[str], *, topic_id: UUID = UNNAMED, away: Collection[int] = ()
) -> Iterator[list[Operation]]:
    """Yield the operations that delete the topic, in groups whose operations stay together.

    `existing` are those paths that exist of the topic's node, the nodes below it, its configuration, the request and
    the notes, which stay. The brokers in `away` have replicas and are not registered, so they get no StopReplica.
    """
    last = (paths.topic_config(name), paths.topic(name), paths.delete_topic(name))
    notes = [] if topic_id == UNNAMED else [paths.deleted_replica(each, topic_id) for each in sorted(away)]
    below = sorted(
        (path for path in existing if path not in (*last, *notes)), key=lambda path: path.count("/"), reverse=True
    )
    for path in below:
        yield [Delete(path=path)]
    yield [
        *(Delete(path=path) for path in last if path in existing),
        *(Create(path=path) for path in notes if path not in existing),
    ]
