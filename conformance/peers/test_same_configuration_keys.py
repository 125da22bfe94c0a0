"""Every configuration key of Kafka's, as Kafka describes it, beside what we know of it."""

import base64
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from bench.peers.kafka_peer import kafka_home
from conformance.peers.client_files import BOOTSTRAP, OTHERWISE, PROPERTIES
from conformance.peers.compare_with_kafka import BrokerPair, Request
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import settings_of_properties
from odradek.config.broker import BrokerConfig
from odradek.config.dynamic import DYNAMIC
from odradek.config.replaced_keys import REPLACED_KEYS
from odradek.config.unimplemented_keys import unimplemented_keys
from odradek.protocol.api import ApiKey

TOPIC, BROKER, DEFAULT = 2, 4, 5
NOT_DYNAMIC = {
    "advertised.listeners",
    "listeners",
    "listener.security.protocol.map",
    "num.recovery.threads.per.data.dir",
}
SECURITY = "ssl.", "sasl."
"""Keys, and beginnings of keys, that Kafka changes at run time and Odradek only reads at the start."""
LISTS = {"listener.security.protocol.map"}
"""Keys that are lists, which Kafka describes as strings."""
OTHER_DEFAULTS = {
    "broker.id",
    "listeners",
    "listener.security.protocol.map",
    "log.dirs",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "queued.max.request.bytes",
    "sasl.enabled.mechanisms",
    "sasl.mechanism.inter.broker.protocol",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "ssl.keystore.type",
    "ssl.truststore.type",
    "transaction.state.log.num.partitions",
}
"""Keys explained in the table in `odradek.config.broker`."""

pytestmark = pytest.mark.needs("kafka")


def described(pair: BrokerPair, kind: int, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what both say of every key, by name: ours, and Kafka's."""
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    message = {"resources": resources, "include_synonyms": True, "include_documentation": False}
    answers = pair.ask(Request(api=ApiKey.DESCRIBE_CONFIGS, version=4, message=message))
    ours, kafkas = ({each["name"]: each for each in answer["results"][0]["configs"]} for answer in answers)
    return ours, kafkas


def default(entry: dict[str, Any]) -> str | None:
    """Return the value that the key has if nobody sets it; empty and none are the same."""
    found = [each["value"] for each in entry["synonyms"] if each["source"] == DEFAULT and each["name"] == entry["name"]]
    return found[0] or None if found else None


def test_every_key_of_a_topic_is_described_alike(pair: BrokerPair):
    pair.create({"keys-a": {}}, 1)
    ours, kafkas = described(pair, TOPIC, "keys-a")
    assert ours.keys() == kafkas.keys()
    for name in ours.keys() - {"min.insync.replicas"}:  # Kafka sets it for the cluster (KIP-966)
        mine, theirs = (
            {key: value for key, value in each[name].items() if key != "synonyms"} for each in (ours, kafkas)
        )
        assert mine == theirs, name


def test_every_key_of_a_broker_is_ours_or_in_the_table_of_those_without_effect(pair: BrokerPair):
    _, kafkas = described(pair, BROKER, "0")
    known = (
        BrokerConfig.definitions().keys() | REPLACED_KEYS.keys() | {"unstable.api.versions.enable"}
    )  # set by the pair
    assert kafkas.keys() - known == unimplemented_keys().keys()
    for name, entry in kafkas.items():
        if name not in unimplemented_keys():
            continue
        key = unimplemented_keys()[name]
        assert key.definition.type == entry["config_type"], name
        assert (key.mode == "read-only") == entry["read_only"], name
        assert (key.definition.format(key.definition.default) or None) == default(entry), name


def test_every_key_of_a_broker_that_both_have_is_described_alike(pair: BrokerPair):
    ours, kafkas = described(pair, BROKER, "0")
    for name in ours.keys() & kafkas.keys():
        mine, theirs = ours[name], kafkas[name]
        assert mine["config_type"] == theirs["config_type"] or name in LISTS, name
        assert mine["is_sensitive"] == theirs["is_sensitive"], name
        assert mine["read_only"] == theirs["read_only"] or name in NOT_DYNAMIC or name.startswith(SECURITY), name
        if name not in OTHER_DEFAULTS and mine["config_type"] != 6:  # Java writes large numbers in another way
            assert default(mine) == default(theirs), name
    assert {name for name in ours.keys() & kafkas.keys() if name in DYNAMIC and kafkas[name]["read_only"]} == set()


# ---- Texts of settings -----------------------------------------------------------------------------------------------

SOURCE: Final = Path(__file__).parent / "java" / "ClientTexts.java"


def kafkas(kind: str, texts: list[str]) -> list[list[str] | None]:
    lines = "".join(f"{kind} {base64.b64encode(text.encode()).decode()}\n" for text in texts)
    printed = subprocess.run(
        kafka_home().command(str(SOURCE)), input=lines, capture_output=True, text=True, check=True, timeout=120
    ).stdout

    def read(line: str) -> list[str] | None:
        return None if line == "!" else [base64.b64decode(each.rstrip(".")).decode() for each in line.split()]

    return [read(line) for line in printed.splitlines()]


def test_bootstrap_servers_are_those_of_kafkas_clients() -> None:
    for text, theirs in zip(BOOTSTRAP, kafkas("bootstrap", list(BOOTSTRAP)), strict=True):
        ours = BOOTSTRAP[text]
        if text in OTHERWISE:
            assert (theirs is None) != (ours is None), text
            continue
        assert (theirs is None) == (ours is None), text
        for address, server in zip(ours or [], theirs or [], strict=True):
            host, port = server.split(" ")
            assert address.replace("[", "").replace("]", "") == f"{host}:{port}"


def test_properties_are_those_of_java() -> None:
    for text, theirs in zip(PROPERTIES, kafkas("properties", list(PROPERTIES)), strict=True):
        given = None if theirs is None else dict(zip(theirs[::2], theirs[1::2], strict=True))
        assert given == PROPERTIES[text], text


def test_no_key_of_kafkas_clients_is_refused_in_a_file() -> None:
    (keys,) = kafkas("keys", [""])
    assert keys is not None
    assert len(keys) > 140
    ignored: list[str] = []
    settings_of_properties(dict.fromkeys(keys, "x"), ConsumerSettings, ProducerSettings, ignored=ignored.append)
    assert 60 < len(ignored) < 90
