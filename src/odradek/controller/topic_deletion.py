"""Deleting a topic: what remains to be removed of it, in an order that a successor can take up anywhere.

The wish is a node below `/admin/delete_topics` and goes last, together with the topic's own node: as long as anything
of the topic is there, so is the wish.

Brokers that are away still have their replicas. In the same step as the topic goes, a node for each of them says that
its logs of this topic id are to be deleted (`broker.replication.strays`); the broker removes that node.
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
    """What became of the wish to delete a topic, given by name or by id; without an error it is gone."""

    name: str | None
    topic_id: UUID | None
    error: KafkaError | None = None


def deletion_operations(
    name: str, existing: Collection[str], *, topic_id: UUID = UNNAMED, away: Collection[int] = ()
) -> Iterator[list[Operation]]:
    """What deletes the topic, in groups whose operations stay together.

    `existing` are the paths of the topic's node and everything below it, its configuration, and the wish; those that
    are not there are not deleted. The brokers in `away` have replicas that nobody could tell them to delete.
    """
    last = (paths.topic_config(name), paths.topic(name), paths.delete_topic(name))
    below = sorted((path for path in existing if path not in last), key=lambda path: path.count("/"), reverse=True)
    for path in below:
        yield [Delete(path=path)]
    notes = [] if topic_id == UNNAMED else [paths.deleted_replica(each, topic_id) for each in sorted(away)]
    yield [
        *(Delete(path=path) for path in last if path in existing),
        *(Create(path=path) for path in notes if path not in existing),
    ]
