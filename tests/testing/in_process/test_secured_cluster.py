"""`Cluster(security=…)`: certificates, users and their faults (X9)."""

import os
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from odradek.clients import blocking
from odradek.clients.cluster import NoBrokerError
from odradek.model import AuthenticationError, KafkaError
from odradek.runtime.certificates import CertificateAuthority
from odradek.testing import Cluster

USERS = {"alice": 'se"c\\ret', "bob": "x"}
ROTATIONS = 4
"""Each takes a second: brokers look at their files that often."""


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(security="sasl_ssl", users=USERS) as cluster:
        yield cluster


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_by_every_mechanism(secured: Cluster, mechanism: str) -> None:
    with secured.producer(**secured.settings("alice", mechanism=mechanism)) as producer:
        producer.send(mechanism, b"x").result()
        assert secured.expire_sessions("bob") == 0
        assert secured.expire_sessions("alice") >= 1
        assert producer.send(mechanism, b"y").result().offset == 1
    with secured.consumer(mechanism) as consumer:
        assert [record.value for record in consumer.poll(10_000)] == [b"x", b"y"]


def test_a_wrong_password_is_refused(secured: Cluster) -> None:
    wrong = secured.settings("alice") | {"sasl_password": "wrong"}
    with pytest.raises(AuthenticationError, match="PLAIN: Authentication failed"), secured.producer(**wrong):
        pass


def test_a_user_of_a_cluster_with_certificates_is_known_by_its_own() -> None:
    with Cluster(security="SSL", users=USERS) as cluster, cluster.admin(**cluster.settings("alice")) as admin:
        assert len(admin.describe_cluster().brokers) == 1
        assert cluster.expire_sessions("bob") == 0
        assert cluster.expire_sessions("alice") >= 1
        anonymous = cluster.settings("alice")
        del anonymous["ssl_keystore_location"]
        with (
            pytest.raises(NoBrokerError, match="requires a client certificate"),
            blocking.Admin(**anonymous, default_api_timeout_ms=200),
        ):
            pass


def test_producers_lose_no_record_while_certificates_change(secured: Cluster) -> None:
    """Every connection opens after a change, because each change ends the sessions of before."""
    host, _, port = secured.address(0).rpartition(":")
    seen, failures, sent = set[str](), list[object](), 0
    # Without idempotence, librdkafka writes a batch twice whose response an ended session has kept back.
    existing = confluent_kafka.Producer(secured.settings("bob", "confluent-kafka") | {"enable.idempotence": True})
    secured.create_topic("rotation", partitions=2)
    with secured.producer(**secured.settings("alice"), linger_ms=0) as ours:
        for _ in range(ROTATIONS):
            answers = []
            for _ in range(50):
                answers.append(ours.send("rotation", b"%d" % sent, partition=0))
                existing.produce(
                    "rotation", b"%d" % sent, partition=1, on_delivery=lambda error, _: failures.append(error)
                )
                sent += 1
            existing.poll(0)
            seen.add(ssl.get_server_certificate((host, int(port))))
            secured.rotate_certificate()
            assert secured.expire_sessions("alice") > 0
            secured.expire_sessions("bob")
            assert [each.result().offset for each in answers] == list(range(sent - 50, sent))
        assert existing.flush(30) == 0
    assert len(seen) == ROTATIONS
    assert failures == [None] * sent
    with secured.simple_consumer() as reader:
        ends = reader.end_offsets([("rotation", 0), ("rotation", 1)])
    assert list(ends.values()) == [sent, sent]


def test_a_killed_broker_of_a_secured_cluster_loses_no_record() -> None:
    with Cluster(3, security="sasl_ssl", users=USERS) as cluster:
        cluster.create_topic("t", config={"min.insync.replicas": "2"})
        leader = cluster.leader("t", 0)
        assert leader is not None
        with cluster.producer(**cluster.settings("alice", mechanism="SCRAM-SHA-512"), acks="all") as producer:
            for number in range(20):
                if number == 10:
                    cluster.kill(leader)
                producer.send("t", b"%d" % number).result()
        with cluster.consumer("t") as consumer:
            assert [int(record.value or b"") for record in consumer.poll(10_000)] == list(range(20))


@pytest.mark.parametrize("security", ["ssl", "sasl_plaintext"])
def test_a_user_may_do_what_acls_allow_until_they_are_revoked(security: str) -> None:
    acls = [("alice", "Write", "topic:ord*"), ("bob", "READ", "topic:*")]
    with Cluster(2, security=security, users=USERS, acls=acls) as cluster:
        cluster.create_topic("orders", partitions=2)
        reader = cluster.settings("bob") | {"enable_idempotence": False}
        with blocking.Producer(**reader) as producer, pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            producer.send("orders", b"x").result()
        with blocking.Producer(**cluster.settings("alice")) as producer:
            producer.send("orders", b"x").result()
            cluster.revoke(*acls[0])
            for partition in range(2):
                with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                    producer.send("orders", b"y", partition=partition).result()
            cluster.allow("alice", "All", "topic:orders")
            producer.send("orders", b"z").result()
        with pytest.raises(
            ValueError, match=r"such as Write and a resource such as topic:orders.* not 'write' and 'ord'"
        ):
            cluster.allow("alice", "write", "ord")


NAMES = (
    "ops@acme.example",
    "a b",
    "a,b",
    "a=b",
    'a"b',
    "it's",
    "a\\b",
    "a;b",
    "a/b",
    "../a",
    "a$b",
    "a+b:c",
    "#a",
    "ünal",
    "1",
)


@pytest.mark.parametrize("security", ["ssl", "sasl_ssl"])
def test_names_of_users_may_have_any_signs(security: str) -> None:
    acls = [(name, "Write", "topic:t") for name in NAMES]
    with Cluster(security=security, users=dict.fromkeys(NAMES, 'p"w\\ /;='), acls=acls) as cluster:
        cluster.create_topic("t")
        for name in NAMES:
            for mechanism in ("PLAIN", "SCRAM-SHA-512") if security == "sasl_ssl" else ("",):
                with blocking.Producer(**cluster.settings(name, mechanism=mechanism)) as producer:
                    producer.send("t", name.encode()).result()
                existing = confluent_kafka.Producer(cluster.settings(name, "confluent-kafka", mechanism=mechanism))
                existing.produce("t", name.encode())
                assert existing.flush(30) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("carol",), "there is no user 'carol', only broker, alice, bob"),
        (("alice", "sarama"), "there is no client 'sarama', only odradek, confluent-kafka, kafka-python"),
    ],
)
def test_an_unknown_user_or_client_is_refused(secured: Cluster, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        secured.settings(*arguments)
    with pytest.raises(ValueError, match="there is no mechanism 'GSSAPI', only PLAIN"):
        secured.settings("alice", mechanism="GSSAPI")
    with pytest.raises(ValueError, match="security must be ssl, sasl_plaintext, sasl_ssl or plaintext, not 'tls'"):
        Cluster(security="tls")


def test_a_cluster_without_certificates_has_none_to_rotate() -> None:
    with Cluster() as cluster, pytest.raises(RuntimeError, match="use security='sasl_ssl'"):
        cluster.rotate_certificate()


def test_an_authority_is_kept_in_files_of_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "security"
    first = CertificateAuthority(directory).certificate.read_bytes()
    authority = CertificateAuthority(directory)
    assert authority.certificate.read_bytes() == first
    authority.issue("broker")
    modes = {path.name: stat.S_IMODE(os.stat(path).st_mode) for path in (directory, *directory.iterdir())}
    assert modes == {"security": 0o700, "ca.pem": 0o600, "ca.key": 0o600, "broker.pem": 0o600}
