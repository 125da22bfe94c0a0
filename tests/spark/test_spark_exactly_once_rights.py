"""The rights of an exactly-once sink in a cluster with SASL_SSL and ACLs, and the error without each of them."""

import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pytest

from odradek.clients.blocking import Consumer
from odradek.clients.blocking.loop_thread import loop_thread
from odradek.model import OdradekError
from odradek.spark.options import WriteOptions, parse_write_options
from odradek.spark.writing.committer import decided_write
from odradek.spark.writing.decision import WriteId
from odradek.spark.writing.writers import TaskCommitMessage, end_write, write_task
from odradek.testing import Cluster

TOPIC: Final = "prices"
WRITE: Final = ("alice", "Write", f"topic:{TOPIC}")
DECIDE: Final = ("alice", "Read", f"topic:{TOPIC}")
TRANSACTIONS: Final = ("alice", "Write", f"transactional_id:{TOPIC}-*")
TWO_PHASE: Final = ("alice", "TwoPhaseCommit", f"transactional_id:{TOPIC}-*")
GROUP: Final = ("alice", "Read", f"group:{TOPIC}")
RIGHTS: Final = (WRITE, DECIDE, TRANSACTIONS, TWO_PHASE, GROUP)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {"transaction.two.phase.commit.enable": "true"}
    with Cluster(security="sasl_ssl", users={"alice": "secret"}, acls=RIGHTS, config=config) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        yield cluster


@pytest.fixture
def options(cluster: Cluster) -> WriteOptions:
    keys = {f"kafka.{key.replace('_', '.')}": str(value) for key, value in cluster.settings("alice").items()}
    given = {"topic": TOPIC, "guarantee": "exactly_once", "transactionalIdPrefix": TOPIC}
    return parse_write_options({**keys, **given, "kafka.default.api.timeout.ms": "10000"})


def prepared(options: WriteOptions, value: str) -> TaskCommitMessage:
    """Write a row in the task of a batch 0 of a new query."""
    decided = loop_thread().run(lambda: decided_write(options))
    write_id = WriteId(query=value, run=uuid.uuid4().hex, batch=0)
    rows = pa.record_batch([pa.array([value.encode()], pa.binary())], ["value"])
    return write_task(iter([rows]), options, write_id, "0.0", decided)


def commit(options: WriteOptions, message: TaskCommitMessage) -> None:
    end_write(options, [message], None, committed=True)


def written(cluster: Cluster) -> list[str]:
    login = cluster.settings()
    with Consumer(TOPIC, **login, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        return [(record.value or b"").decode() for record in consumer.poll(2_000)]


def test_five_rights_are_enough(cluster: Cluster, options: WriteOptions) -> None:
    message = prepared(options, "enough")
    with cluster.admin() as admin:
        (found,) = admin.list_transactions(states=["Ongoing"])
        assert admin.describe_transactions([found.transactional_id])[found.transactional_id].is_prepared
    commit(options, message)
    assert "enough" in written(cluster)


@pytest.mark.parametrize(
    ("right", "error"),
    [
        (WRITE, r"TOPIC_AUTHORIZATION_FAILED"),
        (TRANSACTIONS, r"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (GROUP, r"GROUP_AUTHORIZATION_FAILED"),
        (DECIDE, r"TOPIC_AUTHORIZATION_FAILED"),
    ],
    ids=lambda each: each[1] + each[2] if isinstance(each, tuple) else None,
)
def test_nothing_is_visible_without_one_of_the_rights(
    cluster: Cluster, options: WriteOptions, right: tuple[str, str, str], error: str
) -> None:
    value = uuid.uuid4().hex
    cluster.revoke(*right)
    try:
        with pytest.raises(OdradekError, match=error):
            commit(options, prepared(options, value))
        assert value not in written(cluster)
    finally:
        cluster.allow(*right)
    commit(options, prepared(options, f"{value}-later"))
    assert written(cluster)[-1] == f"{value}-later"


def test_transactions_have_a_timeout_without_the_right_to_two_phase_commit(
    cluster: Cluster, options: WriteOptions
) -> None:
    cluster.revoke(*TWO_PHASE)
    try:
        message = prepared(options, "with-a-timeout")
        with cluster.admin() as admin:
            (found,) = admin.list_transactions(states=["Ongoing"])
            described = admin.describe_transactions([found.transactional_id])[found.transactional_id]
        assert described.timeout_ms == 900_000
        commit(options, message)
    finally:
        cluster.allow(*TWO_PHASE)
    assert written(cluster)[-1] == "with-a-timeout"
