"""Transactions over a bare connection, whose coordinator is the test: there is none yet that a client could ask."""

from typing import Any, Final

from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.wire_client import BlockingWireClient

NOW_MS: Final = 1_790_000_000_000


class Partition:
    """One topic of one partition, written over a bare connection; it counts each producer's sequence."""

    def __init__(self, servers: str, topic: str, **config: str) -> None:
        self.topic = topic
        self.sequences: dict[int, int] = {}
        self.expected: list[bytes] = []
        self.connection = BlockingWireClient(servers)
        created = {
            "name": topic,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": name.replace("_", "."), "value": value} for name, value in config.items()],
        }
        answer = self.connection.ask(ApiKey.CREATE_TOPICS, {"topics": [created], "timeout": 10_000}, 7)
        assert answer.topics[0].error_code == 0

    def connect(self, servers: str) -> None:
        self.close()
        self.connection = BlockingWireClient(servers)

    def close(self) -> None:
        self.connection.__exit__()

    def write(self, *values: bytes, producer: int = -1, codec: Codec = Codec.NONE) -> None:
        """Values of a producer's transaction, or of none."""
        options: dict[str, Any] = {}
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(values)
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        batch = bytes(encode_batch([(NOW_MS, None, value, ()) for value in values], codec=codec, **options))
        message = {
            "transactional_id": "x" if producer >= 0 else None,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": self.topic, "partition_data": [{"index": 0, "records": batch}]}],
        }
        answer = self.connection.ask(ApiKey.PRODUCE, message, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def end(self, producer: int, *, committed: bool) -> None:
        marker = {
            "producer_id": producer,
            "producer_epoch": 0,
            "transaction_result": committed,
            "coordinator_epoch": 0,
            "topics": [{"name": self.topic, "partition_indexes": [0]}],
        }
        answer = self.connection.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0

    def fill(self) -> None:
        """Transactions of several kinds, one in another, in every codec; `expected` is what is committed, in order."""
        kept = self.expected
        for number, codec in enumerate(Codec):
            name = codec.name.encode()
            self.write(name + b" plain", codec=codec)
            self.write(name + b" committed", name + b" committed too", producer=1, codec=codec)
            self.write(name + b" aborted", producer=2, codec=codec)
            self.write(name + b" between", codec=codec)
            self.write(name + b" late", producer=1, codec=codec)
            self.end(2, committed=False)
            self.end(1, committed=number % 2 == 0)
            self.write(name + b" again", producer=2, codec=codec)
            self.end(2, committed=True)
            self.end(3, committed=False)  # nothing was open
            kept.append(name + b" plain")
            kept += [name + b" committed", name + b" committed too"] if number % 2 == 0 else []
            kept.append(name + b" between")
            kept += [name + b" late"] if number % 2 == 0 else []
            kept.append(name + b" again")
        self.write(b"open", producer=5)
        self.write(b"behind what is open")
