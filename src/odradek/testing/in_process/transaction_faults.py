"""Faults of transactions in a `Cluster`: the coordinator dies at a step of a transaction's end, or none ends it."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from odradek.broker.lifecycle import Broker
from odradek.broker.transactions.machine.messages import EndTransactionRequest
from odradek.protocol.batches.records import encode_batch
from odradek.testing.in_process.broker_thread import BrokerThread
from odradek.testing.machine_clock import MachineClock

STEPS: Final = ("before prepare", "after prepare", "after first marker", "after completion")
_HANGING_ID: Final = 1 << 40
"""The producer id of hanging transactions, which no coordinator knows."""


class TransactionFaults:
    """The faults of `Cluster.transactions`; `threads` are the running brokers, and `kill` ends one of them."""

    def __init__(self, threads: Mapping[int, BrokerThread], kill: Callable[[int], None]) -> None:
        self._threads = threads
        self._kill = kill

    def kill_coordinator(self, transactional_id: str, step: str) -> "concurrent.futures.Future[int]":
        """Kill the coordinator when a transaction of the id next reaches `step`; the result is the broker's id.

        "before prepare": EndTxn has arrived, and nothing is recorded. "after prepare": the decision is durable, and no
        marker is written. "after first marker": one leader has written its markers. "after completion": the end of the
        transaction is recorded. Brokers that start later are not affected.
        """
        if step not in STEPS:
            raise ValueError(f"there is no step {step!r}; there are {', '.join(STEPS)}")
        killed: concurrent.futures.Future[int] = concurrent.futures.Future()
        for thread in list(self._threads.values()):
            thread.call(partial(_at_step, thread.broker, transactional_id, step, partial(self._die, thread, killed)))
        return killed

    def hang(self, topic: str, partition: int = 0, value: bytes = b"") -> int:
        """Append a record of a transaction that no coordinator knows, and return its producer id, with epoch 0.

        Consumers with read_committed wait at this record until `Admin.abort_transaction` ends the transaction.
        """
        now_ms = MachineClock().now_ms()
        batch = encode_batch(
            [(now_ms, None, value, ())],
            producer_id=_HANGING_ID,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

        def append(broker: Broker) -> None:
            led = broker.partitions.leader(topic, partition)
            led.append_records(memoryview(batch), acks=-1, now_ms=now_ms, from_client=False)

        for thread in list(self._threads.values()):
            if thread.broker.partitions.leader_or_none(topic, partition) is not None:
                thread.call(partial(append, thread.broker))
                return _HANGING_ID
        raise RuntimeError(f"{topic}-{partition} has no leader")

    def _die(self, thread: BrokerThread, killed: "concurrent.futures.Future[int]") -> bool:
        """Kill the broker from its own loop; return False if another has been killed."""
        if killed.running() or killed.done() or not killed.set_running_or_notify_cancel():
            return False

        def kill() -> None:
            self._kill(thread.broker_id)
            killed.set_result(thread.broker_id)

        thread.die_here(kill)
        return True


def _at_step(broker: Broker, transactional_id: str, step: str, die: Callable[[], bool]) -> None:
    """Call `die` on the broker's loop when a transaction of the id reaches `step`."""
    coordinator: Any = broker.transactions
    markers = coordinator.markers
    submit, send, settle, complete = coordinator.submit, markers.send, markers._settle, markers._completed

    async def submitted(key: str, request: Any) -> Any:
        if key == transactional_id and isinstance(request, EndTransactionRequest) and die():
            raise asyncio.CancelledError
        return await submit(key, request)

    def sent(end: Any) -> None:
        if end.transactional_id != transactional_id or not die():
            send(end)

    def settled(ending: Any, partitions: Any, errors: Any) -> None:
        is_written = not any(errors.get(each, True) for each in partitions)
        if ending.end.transactional_id != transactional_id or not is_written or not die():
            settle(ending, partitions, errors)

    async def completed(end: Any) -> None:
        await complete(end)
        if end.transactional_id == transactional_id:
            die()

    hook: dict[str, tuple[Any, str, Any]] = dict(
        zip(
            STEPS,
            (
                (coordinator, "submit", submitted),
                (markers, "send", sent),
                (markers, "_settle", settled),
                (markers, "_completed", completed),
            ),
            strict=True,
        )
    )
    setattr(*hook[step])
