"""Runs one coordinator: the state machine of one partition, its records, its waiting requests and its timer.

```
             start()                        loaded                        a write is lost, the machine fails
   created ─────────▶ LOADING ───────────────────────────▶ ACTIVE ──────────────▶ LOADING
                       ▲  │ fails
          back-off over│  ▼                     unload(), kill() at any time ───▶ CLOSED
                      FAILED
```
If the partition accepts records, a request is handled at once. The result's records are appended as one batch and
applied. The replies are sent when everything appended so far is committed, so no reply shows state that may be lost.
While the partition refuses records, at most read requests are handled, and the machine's clock stands still.

A state machine needs no undo code. If a request fails, or a result's records cannot be appended, nothing was applied,
and the request's key (a group) is reset, as if just loaded. If appended records are lost, the state machine is loaded
again, with a back-off if that happens repeatedly.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Final, Generic, TypeVar

from odradek.broker.coordinators.coordinator_loader import load
from odradek.broker.coordinators.deferred_replies import RESIGNED, TOO_LARGE, DeferredReplies, response_error
from odradek.broker.coordinators.machine import (
    NO_PRODUCER,
    CoordinatorResult,
    Machine,
    Now,
    Producer,
    RecordCodec,
    Reply,
)
from odradek.broker.replication.partition import ACKS_ALL, Partition
from odradek.broker.turns import TURN_S, cooperatively_by_time
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, OdradekError
from odradek.model.probes import perturb, probe
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import Clock
from odradek.runtime.rate_limited_log import RateLimitedLog

_INITIAL_RELOAD_BACKOFF_S: Final = 1.0
_MAX_RELOAD_BACKOFF_S: Final = 60.0
_MAX_BACKOFF_OF_LOST_WRITES_S: Final = 10.0
_CALM_S: Final = 60.0
"""A machine that was active for this long is loaded again without a back-off."""
_AT_ONCE_MS: Final = -1
_PAUSED_CHECK_S: Final = 0.5
"""Interval at which a context whose partition refuses records checks whether it accepts them again."""
_REFUSED: Final = (
    "Refused a request for %s: %s. Its coordinator writes nothing, so commits and joins fail, until more replicas of "
    "this partition are in sync: start the brokers that have them"
)
_log = logging.getLogger("odradek.coordinators")
_MOST_KEY_CHARACTERS: Final = 200
"""Limit of a key's characters in a log line."""

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


class CoordinatorState(Enum):
    """The state of a coordinator."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


class SharedTurn:
    """The time that all coordinators have spent on new images and deadlines in this turn of the event loop."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def spend(self, seconds: float) -> None:
        """Add to the time, which is 0 again in the loop's next turn."""
        if seconds > 0 and not self.spent_s:
            asyncio.get_running_loop().call_soon(self._end)
        self.spent_s += seconds

    def _end(self) -> None:
        self.spent_s = 0.0


class CoordinatorContext(Generic[RequestT, RecordT]):
    """One coordinator. `commit_timeout_ms` limits how long replies and loads wait for commits."""

    def __init__(
        self,
        partition: Partition,
        *,
        new_machine: Callable[[], Machine[RequestT, RecordT]],
        codec: RecordCodec[RecordT],
        clock: Clock,
        commit_timeout_ms: int,
        image: Callable[[], ClusterImage],
        refusal_log: RateLimitedLog,
        shared_turn: SharedTurn,
        on_event: Callable[[object], None] = lambda _: None,
    ) -> None:
        self.partition = partition
        self.state = CoordinatorState.LOADING
        self.machine = new_machine()
        self._new_machine = new_machine
        self._codec = codec
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._image = image
        self._refusal_log = refusal_log
        self._shared_turn = shared_turn
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._loading: asyncio.Task[None] | None = None
        self._is_loaded = False
        """Whether the state machine has all records of the log, so that new markers are applied when appended."""
        self._requests: dict[asyncio.Future[object], str] = {}
        """The futures of requests without a reply, with the requests' keys."""
        self._replies = DeferredReplies(
            partition,
            timeout_ms=commit_timeout_ms,
            send=self._send,
            on_failure=self._records_lost,
            refusal_log=refusal_log,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = _AT_ONCE_MS
        """The deadline that the timer is set for."""
        self._image_before: ClusterImage | None = None
        """The last image that the state machine has handled, if a newer one waits or is being handled; else None."""
        self._image_results: Iterator[CoordinatorResult[RecordT]] | None = None
        """The results of the image that is being handled, without those taken."""
        self._new_image: ClusterImage | None = None
        """The image of `_image_results`."""
        self._image_ends: dict[str, int] = {}
        """By key, the log's end after its result: the key is handled again only if these records are lost."""
        self._active_since_s = 0.0
        self._reloads = 0
        """Number of loads since the machine was last active for `_CALM_S`."""
        self._paused_at_ms: int | None = None
        """The monotonic time at which the machine's clock stopped; None while it runs."""
        self._paused_ms = 0
        """Sum of the machine clock's pauses that are over."""

    # -- loading and closing -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the state machine from the partition's records; a failed load is repeated with a back-off."""
        self._begin_loading(after_s=0)

    def _begin_loading(self, *, after_s: float) -> None:
        self.state = CoordinatorState.LOADING
        self.machine = self._new_machine()
        self._loading = self._loop.create_task(self._load_until_done(after_s), name=f"loading {self._name}")

    async def _load_until_done(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        delay_s = _INITIAL_RELOAD_BACKOFF_S
        while True:
            try:
                await self._load()
            except Exception as error:
                _log.error(
                    "Failed to load %s: %s; it has no coordinator, the next attempt is in %.0f s",
                    self._name, error, delay_s, exc_info=None if isinstance(error, OdradekError) else error,
                )  # fmt: skip
            else:
                return
            self._drop(KafkaError(ErrorCode.not_coordinator))
            self.state = CoordinatorState.FAILED
            self.machine = self._new_machine()
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_RELOAD_BACKOFF_S)
            self.state = CoordinatorState.LOADING

    async def _load(self) -> None:
        """Load the records, and append and apply the results of `on_elected`. The machine's clock stands still."""
        began_s = self._clock.monotonic()
        if self._paused_at_ms is None:
            self._paused_at_ms = int(began_s * 1000)
        summary = await load(self.partition, self.machine, self._codec, timeout_ms=self._commit_timeout_ms)
        if not summary.is_committed:
            probe("coordinator: the loaded records are not committed yet")
            self._replies.appended(summary.end_offset)
        self._is_loaded = True
        results = self.machine.on_elected(self._image(), self.now)
        async for result in cooperatively_by_time(results, self._clock.monotonic):
            self._take(result)
        self.state = CoordinatorState.ACTIVE
        self._loading = None
        self._active_since_s = self._clock.monotonic()
        if summary.records:
            took_ms = (self._active_since_s - began_s) * 1000
            _log.info(
                "Finished loading of metadata from %s in %.0f ms: %d records", self._name, took_ms, summary.records
            )
        self._check_append()
        self._schedule()

    def _reload(self, error: KafkaError) -> None:
        """Load the state machine again from the log; all waiting requests get `error`."""
        probe("coordinator: the state is loaded again after a failed write")
        if self._clock.monotonic() - self._active_since_s >= _CALM_S:
            self._reloads = 0
        after_s = min(2.0**self._reloads - 1, _MAX_BACKOFF_OF_LOST_WRITES_S)
        self._reloads += 1
        _log.warning("Loading %s again in %.0f s: %s", self._name, after_s, error)
        self._stop_loading()
        end = self.partition.log.log_end_offset
        self._image_ends = {key: each for key, each in self._image_ends.items() if each <= end}
        self._drop(error)
        self._begin_loading(after_s=after_s)

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()

    def unload(self, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Close this coordinator: its broker resigned or stops. Waiting requests get `error`."""
        self.state = CoordinatorState.CLOSED
        self._stop_loading()
        self._drop(KafkaError(error))

    def kill(self) -> None:
        """Close this coordinator without responses."""
        self.state = CoordinatorState.CLOSED
        self._stop_loading()
        self._requests.clear()
        self._drop(KafkaError(ErrorCode.not_coordinator))

    def _drop(self, error: KafkaError) -> None:
        self._replies.clear()
        self._cancel_timer()
        self._image_results = None  # they begin anew after a load
        self._is_loaded = False
        for future in tuple(self._requests):
            if not future.done():
                future.set_exception(error)
        self._requests.clear()

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, key: str, request: RequestT) -> "asyncio.Future[object]":
        """Pass a request for `key` to the state machine, and return a future of its reply.

        The future fails with `KafkaError`: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR after a failed load or when
        closed, the partition's error while it refuses records, or an error of the state machine.
        """
        future: asyncio.Future[object] = self._loop.create_future()
        refusal = self._check_append() if self.state is CoordinatorState.ACTIVE else None
        if self.state is not CoordinatorState.ACTIVE:
            is_loading = self.state is CoordinatorState.LOADING
            code = ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.not_coordinator
            future.set_exception(KafkaError(code))
        elif refusal is not None and not self._may_handle_despite(refusal, request):
            if refusal.code is ErrorCode.coordinator_not_available:
                self._refusal_log.log("refused", logging.WARNING, _REFUSED, _shown(key), refusal)
            probe("coordinator: a request is refused while records are refused")
            future.set_exception(refusal)
        else:
            self._requests[future] = key
            self._run((self._handle(key, request, future, self.now),))
        return future

    def _handle(
        self, key: str, request: RequestT, future: "asyncio.Future[object]", now: Now
    ) -> CoordinatorResult[RecordT]:
        """Return the state machine's result. If it raises, reset this key only."""
        try:
            return self.machine.handle(key, request, future, now)
        except Exception as error:
            _log.exception("The coordinator of %s failed to handle a request for %s", self._name, _shown(key))
            return self._reset(key, KafkaError(ErrorCode.unknown_server_error, str(error)))

    def _reset(self, key: str, error: KafkaError) -> CoordinatorResult[RecordT]:
        """Fail all requests of a key with `error`, and discard the key's state that is not in records."""
        self._fail(key, error)
        return self.machine.reset(key, self.now)

    def _may_handle_despite(self, refusal: KafkaError, request: RequestT) -> bool:
        """Return whether to handle a request although records are refused: a read, while too few replicas are in sync.

        Its reply waits for the records appended before.
        """
        return refusal.code is ErrorCode.coordinator_not_available and self.machine.is_read(request)

    def on_image(self, old: ClusterImage) -> None:
        """Pass the image that follows `old` to the machine, when it is loaded and the partition accepts records."""
        if self._image_before is None:
            self._image_before = old
        if self.state is CoordinatorState.ACTIVE and self._check_append() is None:
            self._handle_image()

    def _handle_image(self) -> None:
        self._run(self._image_turn())

    def _image_turn(self) -> Iterator[CoordinatorResult[RecordT]]:
        """Yield the results of the images that wait, while a turn has time for them; the next timer continues."""
        while self._image_before is not None and self._shared_turn.spent_s < TURN_S:
            began_s = self._clock.monotonic()
            if self._image_results is None:
                if self._new_image is not self._image():
                    self._image_ends.clear()
                self._new_image = self._image()
                self._image_results = self.machine.on_image(self._image_before, self._new_image, self.now)
            result = next(self._image_results, None)
            if result is None:
                self._image_results = None
                self._image_before = None if self._new_image is self._image() else self._new_image
            elif result.key not in self._image_ends:
                yield result
                if not result.is_continued:
                    self._image_ends[result.key] = self.partition.log.log_end_offset
            self._shared_turn.spend(self._clock.monotonic() - began_s)

    def marker_appended(self, producer_id: int, end_offset: int, *, committed: bool) -> None:
        """Apply an appended transaction marker that ends at `end_offset`. A load in progress reads it from the log."""

        def apply() -> Iterator[CoordinatorResult[RecordT]]:
            self.machine.end_transaction(producer_id, committed=committed)
            self._replies.appended(end_offset)
            yield from ()

        if self._is_loaded:
            self._run(apply())

    def _check_append(self) -> KafkaError | None:
        """Return why the partition refuses records now; None if it accepts them.

        Stop the machine's clock at the first refusal. When records are accepted again, restart it and handle the image.
        """
        error = self.partition.append_error()
        now_ms = int(self._clock.monotonic() * 1000)
        if error is not None and self._paused_at_ms is None:
            self._paused_at_ms = now_ms
            self._schedule()
        elif error is None and self._paused_at_ms is not None:
            probe("coordinator: its clock continues after a pause")
            self._paused_ms += now_ms - self._paused_at_ms
            self._paused_at_ms = None
            self._handle_image()
        return None if error is None else response_error(error)

    @property
    def now(self) -> Now:
        """Return the state machine's time, monotonic and wall-clock."""
        return Now(self._now_ms, self._clock.now_ms())

    @property
    def _now_ms(self) -> int:
        """Return the monotonic time without the pauses in which the partition refused records."""
        if self._paused_at_ms is not None:
            return self._paused_at_ms - self._paused_ms
        return int(self._clock.monotonic() * 1000) - self._paused_ms

    # -- results -------------------------------------------------------------------------------------------------------

    def _run(self, results: Iterable[CoordinatorResult[RecordT]]) -> None:
        """Process `results`. If the state machine raises, or a reset cannot be appended, load it again."""
        try:
            for result in results:
                self._take(result)
        except KafkaError as error:
            self._reload(response_error(error))
        except Exception as error:
            _log.exception("The coordinator of %s failed", self._name)
            self._image_before = None  # it may fail again
            self._reload(KafkaError(ErrorCode.unknown_server_error, str(error)))
        else:
            self._schedule()

    def _take(self, result: CoordinatorResult[RecordT]) -> None:
        """Append and apply a result's records; send its replies when they are committed.

        If the append fails, reset the key unless `is_only_records`. Raises `KafkaError` if the reset's records
        cannot be appended.
        """
        if result.records:
            try:
                self._append(result, result.records)
            except KafkaError as error:
                probe("coordinator: an append of records fails")
                _log.warning("Failed to append records for %s to %s: %s", _shown(result.key), self._name, error)
                if result.is_only_records:
                    self._send([Reply(to=each.to, value=response_error(error)) for each in result.replies])
                    return
                result = self._reset(result.key, response_error(error))
                self._append(result, result.records)
        for event in result.events:
            self._report(event)
        replies = [*result.replies, *(Reply(to=None, value=event) for event in result.committed_events)]
        if replies:
            self._replies.add(replies)

    def _report(self, event: object) -> None:
        """Pass an event to `on_event`, whose exceptions are only logged."""
        try:
            self._on_event(event)
        except Exception:
            _log.exception("Failed to report an event of %s: %r", self._name, event)

    def _fail(self, key: str, error: KafkaError) -> None:
        """Fail all requests of a key that have no reply yet."""
        for future in [each for each, its_key in self._requests.items() if its_key == key]:
            del self._requests[future]
            if not future.done():
                future.set_exception(error)

    def _append(self, result: CoordinatorResult[RecordT], records: Sequence[RecordT]) -> None:
        """Append and apply records as one batch, or as several if that is too large and the result is not atomic."""
        if not records:
            return
        may_split = len(records) > 1 and not result.is_atomic
        batch, now_ms = self._encode(result.producer, records), self._clock.now_ms()
        try:
            if may_split and perturb("coordinator: a batch is refused as too large"):
                raise KafkaError(ErrorCode.record_list_too_large)
            info = self.partition.append_records(
                memoryview(batch),
                acks=ACKS_ALL,
                now_ms=now_ms,
                from_client=False,
                needs_verification=result.needs_verification,
            )
        except KafkaError as error:
            if error.code not in TOO_LARGE or not may_split:
                raise
            probe("coordinator: records are split into smaller batches")
            self._append(result, records[: len(records) // 2])
            self._append(result, records[len(records) // 2 :])
            return
        producer_id = NO_PRODUCER if result.producer is None else result.producer.producer_id
        for offset, record in enumerate(records, info.first_offset):
            self.machine.apply(record, offset, producer_id)
        self._replies.appended(info.last_offset + 1)

    def _encode(self, producer: Producer | None, records: Sequence[RecordT]) -> bytearray:
        """Return the records as a batch. Raises `KafkaError` if one cannot be encoded."""
        now_ms = self._clock.now_ms()
        try:
            encoded = [(now_ms, *self._codec.encode(record), ()) for record in records]
        except Exception as error:
            _log.exception("Failed to encode records for %s", self._name)
            raise KafkaError(ErrorCode.unknown_server_error, f"a record cannot be encoded: {error}") from error
        if producer is None:
            return encode_batch(encoded)
        return encode_batch(
            encoded, producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True
        )

    def _records_lost(self, error: KafkaError) -> None:
        """Load the state machine again after a failed commit, or unload it if this broker no longer leads."""
        if error.code in RESIGNED:
            self.unload()
        else:
            self._reload(response_error(error))

    def _send(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            future = reply.to
            if future is None:
                self._report(reply.value)
                continue
            assert isinstance(future, asyncio.Future)
            self._requests.pop(future, None)
            if future.done():
                continue
            if isinstance(reply.value, KafkaError):
                future.set_exception(reply.value)
            else:
                future.set_result(reply.value)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Set the timer to the next deadline, or `_PAUSED_CHECK_S` from now while the machine's clock stands still."""
        if self.state is not CoordinatorState.ACTIVE:
            return
        is_at_once = self._paused_at_ms is not None or self._image_before is not None
        deadline_ms = _AT_ONCE_MS if is_at_once else self.machine.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        self._cancel_timer()
        # At least 1 ms: rounding must not wake it before its deadline.
        delay_s = max(deadline_ms - self._now_ms, 1) / 1000 if self._paused_at_ms is None else _PAUSED_CHECK_S
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._check_append() is not None:
            self._schedule()
        elif self.state is CoordinatorState.ACTIVE:
            self._run(chain(self._image_turn(), self._expired(self.now)))

    def _expired(self, now: Now) -> Iterator[CoordinatorResult[RecordT]]:
        """Yield the results of deadlines that have passed, while a turn has time for them; the next timer continues."""
        while self._shared_turn.spent_s < TURN_S:
            began_s = self._clock.monotonic()
            if (result := self.machine.expire(now)) is None:
                break
            yield result
            self._shared_turn.spend(self._clock.monotonic() - began_s)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _name(self) -> str:
        return str(self.partition.topic_partition)


def _shown(key: str) -> str:
    return repr(key[:_MOST_KEY_CHARACTERS])
