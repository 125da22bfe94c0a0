"""Texts of clients' settings, as Kafka's clients and Java's properties read them, and as we do."""

import base64
import subprocess
from pathlib import Path
from typing import Final

import pytest

from bench.peers.kafka_peer import kafka_home
from conformance.peers.client_files import BOOTSTRAP, OTHERWISE, PROPERTIES
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import settings_of_properties

SOURCE: Final = Path(__file__).parent / "java" / "ClientTexts.java"

pytestmark = pytest.mark.needs("kafka")


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
