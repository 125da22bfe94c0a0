"""Transcripts of a transactional id, one file each: requests, and, indented, records, events and replies.

A line is `<ms> <who> <what>`. Clients: `inits`, `adds t-0,t-1`, `verifies t-0`, `commits`, `aborts`, with `key=value`
words behind (`version=2`: the transaction version, `as=ID/EPOCH`). A client remembers its producer. Others:
`markers written`, `epoch N`, `log holds | commits | loses`, `coordinator dies`, `time passes`, `cluster version=1`.
"""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.broker.coordinators.machine import Producer
from odradek.broker.transactions.machine.messages import (
    AddPartitionsRequest,
    EndTransactionRequest,
    InitProducerIdReply,
    InitProducerIdRequest,
    MarkersWrittenRequest,
    ProducerInitialised,
    SendMarkers,
    TransactionTimedOut,
    VerifyPartitionsRequest,
)
from odradek.broker.transactions.machine.transaction import TransactionRecord
from odradek.broker.transactions.machine.transaction_machine import TransactionSettings
from odradek.model import KafkaError, TopicPartition
from tests.broker.coordinators.coordinator_transcripts import check_transcript, transcripts
from tests.broker.transactions.machine.transaction_log import ID, TransactionLog, producer


class Play:
    """A transactional id, its log and its clients."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clients: dict[str, Producer] = {}
        self.log = TransactionLog(self.told, TransactionSettings(has_two_phase_commit=True))
        self.log.on_record = lambda record: self.lines.append(f"    append: {shown(record)}")

    def line(self, text: str) -> None:
        words = text.split("#")[0].split()
        if not words:
            return
        now_ms, who, what, *rest = words
        options = dict(word.partition("=")[::2] for word in rest)
        self.log.pass_time(int(now_ms))
        if who == "log":
            self.log.commits_at_once = what == "commits"
            {"holds": lambda: None, "commits": self.log.commit, "loses": self.log.lose}[what]()
        elif who == "coordinator":
            self.log.committed += self.log.appended if "survives" in options else []
            self.log.lose()
        elif who == "cluster":
            self.log.settings = replace(self.log.settings, transaction_version=int(what.partition("=")[2]))
        elif who == "epoch":
            self.log.set_epoch(int(what))
        elif who == "markers":
            assert self.log.markers is not None
            self.log.handle(MarkersWrittenRequest(producer=self.log.markers.producer), "markers")
        elif who != "time":
            self.log.handle(self.request(who, what, rest, options), who)

    def request(self, who: str, what: str, rest: list[str], options: dict[str, str]) -> Any:
        client = producer(options["as"]) if "as" in options else self.clients.get(who)
        version = int(options.get("version", 0))
        if what == "inits":
            return InitProducerIdRequest(
                timeout_ms=int(options.get("timeout", 60_000)),
                producer=client if "recovering" in options or "as" in options else None,
                enable_two_phase_commit="2pc" in options,
                keep_prepared="keep" in options,
            )
        assert client is not None
        if what in {"commits", "aborts"}:
            return EndTransactionRequest(producer=client, is_commit=what == "commits", transaction_version=version)
        names = [each.rpartition("-") for each in rest[0].split(",")]
        partitions = frozenset(TopicPartition(topic, int(number)) for topic, _, number in names)
        if what == "verifies":
            return VerifyPartitionsRequest(producer=client, partitions=partitions)
        return AddPartitionsRequest(producer=client, partitions=partitions, transaction_version=version)

    def told(self, to: object, value: object) -> None:
        if isinstance(value, InitProducerIdReply):
            self.clients[str(to)] = value.producer
            kept = f", ongoing {text(value.ongoing)}" if value.ongoing.producer_id >= 0 else ""
            words = f"{text(value.producer)}{kept}"
        elif isinstance(value, Producer):
            self.clients[str(to)] = value
            words = text(value)
        elif isinstance(value, KafkaError):
            words = value.code.name.upper()
        elif isinstance(value, SendMarkers):
            words = f"{'commit' if value.is_commit else 'abort'} {text(value.producer)} to {listed(value.partitions)}"
            to = f"send markers of version {value.transaction_version}"
        elif isinstance(value, TransactionTimedOut):
            to, words = "timed out", text(value.producer)
        elif isinstance(value, ProducerInitialised):
            return
        else:
            words = "done" if value is None else listed(value)  # type: ignore[arg-type]
        self.lines.append(f"    {to}: {words}")


def text(client: Producer) -> str:
    return f"{client.producer_id}/{client.epoch}"


def listed(partitions: frozenset[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "nothing"


def shown(record: TransactionRecord) -> str:
    assert record.transactional_id == ID
    if (metadata := record.metadata) is None:
        return "tombstone"
    after = f", then {text(metadata.client)}" if metadata.client != metadata.producer else ""
    return f"{metadata.state.text} {text(metadata.producer)} with {listed(metadata.partitions)}{after}"


@pytest.mark.parametrize("path", transcripts(__file__), ids=lambda path: path.stem)
def test_a_transactional_id_answers_as_its_transcript_says(path: Path) -> None:
    check_transcript(path, Play)
