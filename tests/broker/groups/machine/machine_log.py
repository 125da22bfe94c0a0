"""The group coordinator's machine over a log in memory, without a runtime: commits and losses are a test's decision."""

from collections.abc import Callable, Iterable

from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Reply
from odradek.broker.groups.machine.classic.classic_group import ClassicGroup, GroupSettings
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.messages import Request
from odradek.broker.groups.machine.records import GroupRecord
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode


def classic_groups(machine: GroupCoordinatorMachine) -> dict[str, ClassicGroup]:
    """Return the classic groups of a machine, by id."""
    return {group.group_id: group for group in machine.groups.of_type(ClassicGroup)}


class MachineLog:
    """A machine, what is committed and what is only appended, and the replies that wait for commits.

    `send` gets every reply when it leaves; one that fails has an `ErrorCode` in place of its value.
    """

    def __init__(
        self,
        settings: GroupSettings,
        send: Callable[[Reply], None],
        *,
        consumer_settings: ConsumerGroupSettings | None = None,
        image: ClusterImage | None = None,
    ) -> None:
        self.settings = settings
        self.consumer_settings = consumer_settings or ConsumerGroupSettings()
        self.image = image or ClusterImage()
        self.committed: list[GroupRecord] = []
        self.appended: list[GroupRecord] = []
        self.refuses = False
        """Whether appends fail."""
        self.on_result: Callable[[CoordinatorResult[GroupRecord]], None] = lambda _: None
        self._send = send
        self._open: dict[int, tuple[str, object]] = {}
        self._waiting: list[tuple[int, Reply]] = []
        self._batches: list[tuple[int, int]] = []
        self.load(0)

    def load(self, now_ms: int) -> None:
        """Start a machine from what is committed."""
        self.machine = GroupCoordinatorMachine(lambda: self.settings, OffsetSettings, lambda _: self.consumer_settings)
        for offset, record in enumerate(self.committed):
            self.machine.apply(record, offset, NO_PRODUCER)
        self._take(self.machine.on_elected(self.image, Now(now_ms, now_ms)), now_ms)

    def group(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group as the machine has it."""
        return classic_groups(self.machine).get(group_id)

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return a group of the consumer protocol as the machine has it."""
        group = self.machine.groups.by_id.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def handle(self, group_id: str, request: Request, to: object, now_ms: int) -> None:
        """Handle a request."""
        self._open[id(to)] = group_id, to
        self._take([self.machine.handle(group_id, request, to, Now(now_ms, now_ms))], now_ms)

    def expire(self, now_ms: int) -> None:
        """Handle all deadlines that are due."""
        while (result := self.machine.expire(Now(now_ms, now_ms))) is not None:
            self._take([result], now_ms)

    def change_image(self, image: ClusterImage, now_ms: int) -> None:
        """Let topics change."""
        old, self.image = self.image, image
        self._take(self.machine.on_image(old, image, Now(now_ms, now_ms)), now_ms)

    def _take(self, results: Iterable[CoordinatorResult[GroupRecord]], now_ms: int) -> None:
        for result in results:
            if result.records and self.refuses:
                self.fail([each for each in self._open.values() if each[0] == result.key])
                self._take([self.machine.reset(result.key, Now(now_ms, now_ms))], now_ms)
                continue
            self.on_result(result)
            start = len(self.committed) + len(self.appended)
            if result.is_atomic:
                self._batches.append((start, start + len(result.records)))
            for record in result.records:
                self.machine.apply(record, len(self.committed) + len(self.appended), NO_PRODUCER)
                self.appended.append(record)
            end = len(self.committed) + len(self.appended)
            self._waiting += [(end, reply) for reply in result.replies]
            self._release()

    def commit(self, count: int | None = None) -> None:
        """Commit the first records that are appended, or all; of an atomic batch all or none."""
        count = len(self.appended) if count is None else count
        end = len(self.committed) + count
        count -= next((end - first for first, after in self._batches if first < end < after), 0)
        self.committed += self.appended[:count]
        del self.appended[:count]
        self._release()

    def _release(self) -> None:
        end = len(self.committed)
        due = [reply for offset, reply in self._waiting if offset <= end]
        self._waiting = [each for each in self._waiting if each[0] > end]
        for reply in due:
            if self._open.pop(id(reply.to), None) is not None:
                self._send(reply)

    def lose(self, now_ms: int, error: ErrorCode) -> None:
        """Lose what is not committed: all requests fail, and the machine is loaded again."""
        self.appended.clear()
        self._batches = [each for each in self._batches if each[1] <= len(self.committed)]
        self.unload(error)
        self.load(now_ms)

    def unload(self, error: ErrorCode) -> None:
        """Let all requests fail."""
        self._waiting.clear()
        self.fail(list(self._open.values()), error)

    def fail(self, requests: list[tuple[str, object]], error: ErrorCode = ErrorCode.coordinator_not_available) -> None:
        """Let these requests fail."""
        for _, to in requests:
            if self._open.pop(id(to), None) is not None:
                self._send(Reply(to=to, value=error))
