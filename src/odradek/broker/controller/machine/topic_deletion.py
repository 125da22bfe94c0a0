"""Topic deletion: its operations, in an order that lets a new controller continue at any point.

The request, a node below `/admin/delete_topics`, is deleted last, together with the topic's own node.

Brokers that are away keep their replicas. The transaction that deletes the topic creates a note for each of them, a
node with the topic id. When the broker is back, it deletes its logs of this topic id, and then the note
(`broker.replication`).
"""

from collections.abc import Collection, Iterator
from uuid import UUID

from msgspec import Struct

from odradek.metadata import paths
from odradek.metadata.image import UNNAMED
from odradek.metadata.store import Create, Delete, Operation
from odradek.model import KafkaError


class TopicDeletion(Struct, frozen=True, kw_only=True):
    """The result of deleting a topic, by name or by id; the topic is deleted unless there is an `error`."""

    name: str | None
    topic_id: UUID | None
    error: KafkaError | None = None


def deletion_operations(
    name: str, existing: Collection[str], *, topic_id: UUID = UNNAMED, away: Collection[int] = ()
) -> Iterator[list[Operation]]:
    """Yield the operations that delete the topic, in lists that must not be divided between transactions.

    `existing` are the existing paths of the topic's node and the nodes below it, of its configuration, its deletion
    request, and its notes (`paths.deleted_replica`), which stay. The brokers in `away` have replicas but are not
    registered, so they get no request.
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
