"""`Cluster(security=…)` with OAUTHBEARER: the issuer in the test's process, its faults and its clock (X9)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from odradek.model import AuthenticationError, UnavailableError
from odradek.testing import Cluster, eventually

USERS = {"alice": 'se"c\\r+%et', "bob": "x"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(security="sasl_plaintext", users=USERS) as cluster:
        yield cluster


@pytest.fixture(name="alice")
def fixture_alice(cluster: Cluster) -> Iterator[dict[str, Any]]:
    cluster.tokens.lifetime_s, cluster.tokens.clock_offset_s = 300.0, 0.0
    yield cluster.settings("alice", mechanism="OAUTHBEARER")
    cluster.heal()


def test_tokens_that_expire_while_records_are_read_cost_no_record(
    cluster: Cluster, alice: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions end after two seconds, while both consumers wait for the next record."""
    cluster.tokens.lifetime_s = 2.0
    issued, issue = Counter[str](), cluster.tokens.token
    monkeypatch.setattr(cluster.tokens, "token", lambda user: issue(user) if issued.update([user]) is None else "")
    existing = cluster.settings("bob", "confluent-kafka", mechanism="OAUTHBEARER")
    consumer = confluent_kafka.Consumer({**existing, "group.id": "c", "auto.offset.reset": "earliest"})
    cluster.create_topic("short")
    consumer.subscribe(["short"])
    with cluster.producer() as producer, cluster.consumer("short", **alice, group_id="o") as ours:
        for number in range(2):
            value = b"%d" % number
            producer.send("short", value).result()
            assert next(ours).value == value
            assert (message := consumer.poll(30.0)) is not None
            assert (message.error(), message.value()) == (None, value)
            before = dict(issued)
            eventually(lambda before=before: all(issued[user] > before[user] for user in USERS), what="new tokens")  # type: ignore[misc]
    consumer.close()


@pytest.mark.parametrize("offset_s", [-60.0, 60.0])
@pytest.mark.parametrize("client", ["odradek", "confluent-kafka"])
def test_clocks_that_differ_by_a_minute_hinder_no_client(
    cluster: Cluster, alice: dict[str, Any], client: str, offset_s: float
) -> None:
    cluster.tokens.clock_offset_s, topic = offset_s, f"skew.{client}.{offset_s:.0f}"
    if client == "odradek":
        with cluster.producer(**alice) as producer:
            assert producer.send(topic, b"x").result().offset == 0
    else:
        existing = confluent_kafka.Producer(cluster.settings("alice", client, mechanism="OAUTHBEARER"))
        existing.produce(topic, b"x")
        assert existing.flush(30) == 0


def test_tokens_of_an_issuer_whose_clock_is_too_far_behind_are_refused(cluster: Cluster, alice: dict[str, Any]) -> None:
    cluster.tokens.lifetime_s, cluster.tokens.clock_offset_s = 40.0, -80.0
    with pytest.raises(AuthenticationError, match="it has expired"), cluster.admin(**alice):
        pass


def test_a_token_endpoint_that_fails_is_retried_until_it_is_healed(cluster: Cluster, alice: dict[str, Any]) -> None:
    cluster.tokens.fail()
    with (
        pytest.raises(UnavailableError, match=r"token endpoint .* 503"),
        cluster.producer(**alice, max_block_ms=200) as producer,
    ):
        producer.send("failing", b"x").result()
    with pytest.raises(ConnectionError, match="503"):
        cluster.tokens.token("alice")
    cluster.heal()
    with cluster.producer(**alice) as producer:
        cluster.tokens.fail()  # the session that it has goes on
        assert producer.send("failing", b"x").result().offset == 0


def test_a_wrong_client_secret_is_refused(cluster: Cluster, alice: dict[str, Any]) -> None:
    wrong = alice | {"sasl_oauthbearer_client_credentials_client_secret": "wrong"}
    with pytest.raises(AuthenticationError, match="refuses the client: 401"), cluster.admin(**wrong):
        pass
