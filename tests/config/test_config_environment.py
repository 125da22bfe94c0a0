"""Environment variables of Kafka's container images: which keys they are, and what becomes of those of KRaft."""

from pathlib import Path
from typing import Any, Final

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.environment import read_environment
from odradek.config.load import load
from odradek.model import ConfigurationError

KAFKAS_EXAMPLE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,PLAINTEXT_HOST://:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:19092,PLAINTEXT_HOST://localhost:9092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "PATH": "/bin",
}
"""The variables of a single broker in the documentation of Kafka's image."""


def test_the_variables_of_kafkas_example_make_a_broker_and_say_what_has_no_effect() -> None:
    settings = read_environment(KAFKAS_EXAMPLE)
    config = BrokerConfig.parse({**settings.derived, **settings.properties})
    assert (config.broker_id, config.listeners) == (1, ("PLAINTEXT://:19092", "PLAINTEXT_HOST://:9092"))
    assert (config.offsets_topic_replication_factor, config.group_initial_rebalance_delay_ms) == (1, 0)
    assert config.zookeeper_connect is None
    notes = "\n".join(settings.notes)
    for name in ("CLUSTER_ID", "controller.quorum.voters", "node.id", "without CONTROLLER", "KAFKA_HEAP_OPTS"):
        assert name in notes
    assert "PATH" not in notes


@pytest.mark.parametrize(
    ("variables", "properties"),
    [
        ({"KAFKA_LOG_RETENTION_MS": "5"}, {"log.retention.ms": "5"}),
        ({"KAFKA_CFG_LOG_RETENTION_MS": "5"}, {"log.retention.ms": "5"}),
        ({"KAFKA_LOG_DIR": "/data", "KAFKA_LOG_DIRS": "/more"}, {"log.dirs": "/more"}),
        ({"KAFKA_LOG_RETENTION_MS": " "}, {}),
        ({"KAFKA_LISTENER_NAME_A__B___C_X": "y"}, {"listener.name.a_b-c.x": "y"}),
        ({"kafka_log_retention_ms": "5", "HOME": "/root"}, {}),
        ({"KAFKA_BROKER_ID": "3", "KAFKA_NODE_ID": "3"}, {"broker.id": "3"}),
        ({"KAFKA_NUM_IO_THREADS": "8"}, {"num.io.threads": "8"}),
    ],
)
def test_a_variable_is_a_key_by_the_rules_of_the_images(variables: Any, properties: Any) -> None:
    assert read_environment(variables).properties == properties


ADVERTISED: Final = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092,HOST://localhost:29092"}


@pytest.mark.parametrize(
    ("file", "more", "listeners", "log_dirs"),
    [
        ("", {}, ("PLAINTEXT://:9092", "HOST://:29092"), ("/data",)),
        ("listeners=PLAINTEXT://10.0.0.1:1,HOST://:2\n", {}, ("PLAINTEXT://10.0.0.1:1", "HOST://:2"), ("/data",)),
        ("log.dirs=/file\n", {}, ("PLAINTEXT://:9092", "HOST://:29092"), ("/file",)),
        ("log.dirs=/file\n", {"KAFKA_LOG_DIRS": "/more"}, ("PLAINTEXT://:9092", "HOST://:29092"), ("/more",)),
        (
            "listeners=PLAINTEXT://:1,HOST://:2\n",
            {"KAFKA_LISTENERS": "PLAINTEXT://:3,HOST://:4"},
            ("PLAINTEXT://:3", "HOST://:4"),
            ("/data",),
        ),
    ],
)
def test_a_value_that_variables_only_imply_gives_way_to_the_file(
    tmp_path: Path, file: str, more: dict[str, str], listeners: tuple[str, ...], log_dirs: tuple[str, ...]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(file + "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT\n")
    settings = read_environment({**ADVERTISED, "KAFKA_LOG_DIR": "/data", **more})
    config = load(str(path), settings.properties, defaults=settings.derived)
    assert (config.listeners, config.log_dirs) == (listeners, log_dirs)


def test_a_quorum_of_several_needs_a_tree_that_they_share() -> None:
    voters = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093"}
    with pytest.raises(ConfigurationError, match=r"has 2 members.*KAFKA_ZOOKEEPER_CONNECT"):
        read_environment(voters)
    assert not read_environment(voters, metadata="sqlite:////shared/tree").properties
    servers = {"KAFKA_ZOOKEEPER_CONNECT": "z1:2181,z2:2181/kafka"}
    assert read_environment(voters | servers).properties == {"zookeeper.connect": "z1:2181,z2:2181/kafka"}


def test_the_address_of_a_kubernetes_service_is_no_address_of_the_broker() -> None:
    """Kubernetes sets KAFKA_PORT for a Service of the name kafka."""
    variables = {"KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_HOST_NAME": "elsewhere", "KAFKA_ADVERTISED_PORT": "1"}
    assert not read_environment(variables).properties


@pytest.mark.parametrize(
    "service",
    [
        "kafka", "kafka-zookeeper", "kafka-ssl", "kafka-sasl", "kafka-security", "kafka-listener-internal",
        "kafka-authorizer", "kafka-super", "kafka-broker-0", "kafka-log", "kafka-cfg", "kafka-cfg-ssl",
        "kafka-advertised", "kafka-node", "kafka-cluster-id", "kafka-service", "kafka-port",
    ],
)  # fmt: skip
@pytest.mark.parametrize(("port", "transport"), [("9092", "tcp"), ("53", "udp"), ("1", "sctp")])
def test_the_links_that_kubernetes_sets_for_a_service_are_no_settings(service: str, port: str, transport: str) -> None:
    name, kind = service.upper().replace("-", "_"), transport.upper()
    links = {
        f"{name}_SERVICE_HOST": "10.96.0.7",
        f"{name}_SERVICE_PORT": port,
        f"{name}_SERVICE_PORT_CLIENT": port,
        f"{name}_SERVICE_PORT_TCP_SSL_CLIENT": port,
        f"{name}_PORT": f"{transport}://10.96.0.7:{port}",
        f"{name}_PORT_{port}_{kind}": f"{transport}://10.96.0.7:{port}",
        f"{name}_PORT_{port}_{kind}_PROTO": transport,
        f"{name}_PORT_{port}_{kind}_PORT": port,
        f"{name}_PORT_{port}_{kind}_ADDR": "10.96.0.7",
    }
    settings = read_environment(links | {"KAFKA_BROKER_ID": "3"})
    assert settings.properties == {"broker.id": "3"}
    assert settings.notes == ()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"KAFKA_PROCESS_ROLES": "controller"}, "remove this container"),
        ({"KAFKA_NODE_ID": "1", "KAFKA_BROKER_ID": "2"}, "set one"),
        ({"KAFKA_LOG_DIRS": "a", "KAFKA_CFG_LOG_DIRS": "b"}, "KAFKA_CFG_LOG_DIRS and KAFKA_LOG_DIRS"),
    ],
)
def test_contradictions_and_separate_controllers_are_refused(variables: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_environment(variables)


@pytest.mark.parametrize(
    "name", ["KAFKA_AUTHORIZER_CLASS_NAME", "KAFKA_LISTENER_NAME_INTERNAL_NONSENSE", "KAFKA_SSL_CLIENT_AUHT"]
)
def test_a_key_that_would_protect_the_cluster_is_refused_as_in_a_file(name: str) -> None:
    with pytest.raises(ConfigurationError):
        BrokerConfig.parse(read_environment({name: "required"}).properties)
