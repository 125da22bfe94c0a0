"""The order in which a topic goes, and blocks of producer ids."""

from uuid import UUID

import pytest

from odradek.broker.controller.machine import deletion_operations
from odradek.metadata import paths
from odradek.metadata.nodes import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlockNode, next_producer_id_block
from odradek.metadata.store import Create, Delete
from odradek.model import KafkaError

ROOT = "/brokers/topics/a"


def test_the_deepest_nodes_are_deleted_first_and_the_deletion_request_last() -> None:
    existing = {
        ROOT,
        f"{ROOT}/partitions",
        f"{ROOT}/partitions/0",
        f"{ROOT}/partitions/0/state",
        "/config/topics/a",
        "/admin/delete_topics/a",
    }
    groups = [[operation.path for operation in group] for group in deletion_operations("a", existing)]
    assert groups == [
        [f"{ROOT}/partitions/0/state"],
        [f"{ROOT}/partitions/0"],
        [f"{ROOT}/partitions"],
        ["/config/topics/a", ROOT, "/admin/delete_topics/a"],
    ]


def test_nodes_that_are_gone_are_not_deleted_again() -> None:
    [[operation]] = deletion_operations("a", {"/admin/delete_topics/a"})
    assert operation.path == "/admin/delete_topics/a"


def test_the_note_of_an_earlier_try_stays_and_others_are_added() -> None:
    topic_id = UUID(int=1)
    existing = {"/admin/delete_topics/a", paths.deleted_replica(1, topic_id)}
    groups = list(deletion_operations("a", existing, topic_id=topic_id, away=(1, 2)))
    assert groups == [[Delete(path="/admin/delete_topics/a"), Create(path=paths.deleted_replica(2, topic_id))]]


def test_blocks_of_producer_ids_follow_each_other() -> None:
    first = next_producer_id_block(None, 1)
    second = next_producer_id_block(first, 2)
    assert (first.first, first.last) == (0, PRODUCER_ID_BLOCK_SIZE - 1)
    assert (second.first, second.broker_id) == (first.last + 1, 2)


def test_producer_ids_end_before_64_bits_do() -> None:
    with pytest.raises(KafkaError, match="no producer ids left"):
        next_producer_id_block(ProducerIdBlockNode(broker_id=1, first=0, last=2**63 - 2), 1)
