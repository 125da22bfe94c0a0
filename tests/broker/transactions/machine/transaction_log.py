"""The transaction coordinator's machine over a log in memory, without a runtime: a test decides what is committed."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Producer, Reply
from odradek.broker.transactions.machine.messages import (
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdNeeded,
    Request,
    SendMarkers,
)
from odradek.broker.transactions.machine.transaction import TransactionRecord, TransactionRecordCodec
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine, TransactionSettings
from odradek.metadata.image import ClusterImage

ID = "tx"


def producer(text: str) -> Producer:
    """Return the producer of a text such as `1000/5`."""
    producer_id, epoch = map(int, text.split("/"))
    return Producer(producer_id=producer_id, epoch=epoch)


class TransactionLog:
    """A machine and its log. `told` is called with replies and events in order, when they are due.

    Records are encoded and decoded once, as in a real log.
    """

    def __init__(self, told: Callable[[object, object], None], settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.committed: list[TransactionRecord] = []
        self.appended: list[TransactionRecord] = []
        self.commits_at_once = True
        self.now_ms = 0
        self.markers: SendMarkers | None = None
        """The markers that were to be sent last."""
        self.on_record: Callable[[TransactionRecord], None] = lambda _: None
        self._told = told
        self._waiting: list[tuple[int, Reply]] = []
        self._next_producer_id = 1000
        self.load()

    def load(self) -> None:
        """Start a machine from what is committed."""
        self._waiting.clear()
        self.machine = TransactionMachine(lambda: self.settings)
        for offset, record in enumerate(self.committed):
            self.machine.apply(record, offset, NO_PRODUCER)
        self._take(self.machine.on_elected(ClusterImage(), self._now))

    @property
    def _now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def handle(self, request: Request, to: object = "", key: str = ID) -> None:
        """Handle a request, and once more with a new producer id if it needs one."""
        result = self.machine.handle(key, request, to, self._now)
        if any(isinstance(reply.value, ProducerIdNeeded) for reply in result.replies):
            assert isinstance(request, InitProducerIdRequest | EndTransactionRequest)
            wanted = replace(request, new_producer_id=self._next_producer_id)
            self._next_producer_id += 1
            result = self.machine.handle(key, wanted, to, self._now)
        self._take([result])

    def set_epoch(self, epoch: int) -> None:
        """Give the id an epoch that it would reach after many transactions."""
        metadata = replace(self.machine.transactions[ID], producer_epoch=epoch)
        self.committed.append(TransactionRecord(ID, metadata))
        self.load()

    def pass_time(self, now_ms: int) -> None:
        """Let the machine's deadlines up to `now_ms` pass."""
        while (due_ms := self.machine.next_deadline_ms) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            result = self.machine.expire(self._now)
            if result is not None:
                self._take([result])
        self.now_ms = now_ms

    def _take(self, results: Iterable[CoordinatorResult[TransactionRecord]]) -> None:
        codec = TransactionRecordCodec()
        for result in results:
            for event in result.events:
                self._told(None, event)
            for record in result.records:
                decoded = codec.decode(*codec.encode(record))
                assert decoded == record
                self.machine.apply(decoded, 0, NO_PRODUCER)
                self.appended.append(decoded)
                self.on_record(decoded)
            end = len(self.committed) + len(self.appended)
            events = (Reply(to=None, value=event) for event in result.committed_events)
            self._waiting += [(end, reply) for reply in (*result.replies, *events)]
            if self.commits_at_once:
                self.commit()
            else:
                self._release()

    def commit(self) -> None:
        """Commit what is appended."""
        self.committed += self.appended
        self.appended.clear()
        self._release()

    def lose(self) -> None:
        """Lose what is not committed; the machine is loaded again."""
        self.appended.clear()
        self.load()

    def _release(self) -> None:
        due = [reply for end, reply in self._waiting if end <= len(self.committed)]
        self._waiting = [each for each in self._waiting if each[0] > len(self.committed)]
        for reply in due:
            if isinstance(reply.value, SendMarkers):
                self.markers = reply.value
            self._told(reply.to, reply.value)
