"""Several connections' frames in one pool against a model of them, in any order of events that Hypothesis finds."""

from collections import deque
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.wire.buffers import SMALL_BUFFER_BYTES, SMALLEST_BUFFER_BYTES, BufferPool
from odradek.wire.frames import FrameBuffer

LARGEST = 8 * 1024 * 1024
NUMBERS = st.integers(0, 2)
SIZES = st.one_of(
    st.integers(500, 6000),
    st.sampled_from([SMALL_BUFFER_BYTES, SMALLEST_BUFFER_BYTES]).flatmap(lambda size: st.integers(size - 200, size)),
    st.integers(SMALLEST_BUFFER_BYTES, 3 * SMALLEST_BUFFER_BYTES),
)


class RecordingPool(BufferPool):
    """A pool that writes down what it has lent, and lends nothing twice."""

    def __init__(self, limit_bytes: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        super().__init__(limit_bytes=limit_bytes, call_soon=call_soon)
        self.lent: dict[int, bytearray] = {}

    def take(self, least_bytes: int = SMALLEST_BUFFER_BYTES) -> bytearray:
        return self._write_down(super().take(least_bytes))

    def take_small(self) -> bytearray:
        return self._write_down(super().take_small())

    def give(self, buffer: bytearray) -> None:
        assert self.lent.pop(id(buffer), None) is buffer, "given back twice"
        super().give(buffer)

    def _write_down(self, buffer: bytearray) -> bytearray:
        assert id(buffer) not in self.lent, "lent twice"
        self.lent[id(buffer)] = buffer
        return buffer


class Client:
    """The bytes sent, the number that arrived, and the frames not yet taken."""

    def __init__(self, pool: BufferPool) -> None:
        self.frames = FrameBuffer(pool, LARGEST)
        self.pool = pool
        self.sent = b""
        self.due: deque[bytes] = deque()
        self.unread_bytes = 0
        self.waits = False

    def has_memory(self) -> None:
        assert self.waits
        self.waits = False
        self.frames.grow()

    def find_memory(self) -> None:
        if self.pool.is_exhausted:
            self.waits = True
            self.pool.wait(self)
        else:
            self.frames.grow()

    def next_frame(self) -> memoryview | None:
        frame = self.frames.next_frame()
        if frame is None:
            assert not self.due or self.unread_bytes < 4 + len(self.due[0]), "it is whole"
        else:
            assert frame == self.due[0]
        return frame


class PoolModel(RuleBasedStateMachine):
    """Three clients. `turns` is what the pool left for a later turn of the loop, `kept` what others still look at."""

    @initialize(limit_bytes=st.sampled_from([1, 2, 4]).map(lambda count: count * SMALLEST_BUFFER_BYTES))
    def start(self, limit_bytes: int) -> None:
        self.turns: list[Callable[[], None]] = []
        self.kept: list[tuple[memoryview, bytes]] = []
        self.pool = RecordingPool(limit_bytes, self.turns.append)
        self.clients = [Client(self.pool) for _ in range(3)]
        self.letter = 0

    @rule(number=NUMBERS, size=SIZES, most=st.sampled_from([1 << 30, 5, 8000, 0]), takes=st.sampled_from([0, 1000, 1]))
    def receive(self, number: int, size: int, most: int, takes: int) -> None:
        """Receive as much as there is space for, or less, or nothing, as when the connection has just ended."""
        client = self.clients[number]
        if client.waits:
            return
        space = client.frames.space()
        assert len(space) > 0
        count = min(len(space), most)
        while len(client.sent) < count:
            self.letter = self.letter % 251 + 1
            payload = bytes([self.letter]) * size
            client.sent += size.to_bytes(4) + payload
            client.due.append(payload)
        was_filled = count == len(space)
        space[:count] = client.sent[:count]
        del space
        if not count:
            return
        client.sent = client.sent[count:]
        client.unread_bytes += count
        if client.frames.filled(count):
            self.take(number, takes, keeps=False)
        else:
            assert client.next_frame() is None
        if was_filled and client.frames.needs_more:
            client.find_memory()

    @rule(number=NUMBERS, most=st.sampled_from([1000, 1, 0]), keeps=st.booleans())
    def take(self, number: int, most: int, keeps: bool) -> None:
        """Take out `most` frames, and look at one more but put it off."""
        client = self.clients[number]
        for index in range(most + 1):
            frame = client.next_frame()
            if frame is None:
                client.frames.release_if_empty()
                return
            if index == most:
                client.frames.push_back(frame)
                return
            payload = client.due.popleft()
            client.unread_bytes -= 4 + len(payload)
            if keeps:
                self.kept.append((frame, payload))

    @rule(number=NUMBERS)
    def close(self, number: int) -> None:
        client = self.clients[number]
        self.pool.forget(client)
        client.frames.close()
        self.clients[number] = Client(self.pool)

    @rule()
    def turn(self) -> None:
        self.kept.clear()
        turns, self.turns[:] = self.turns[:], []
        for callback in turns:
            callback()
        assert self.pool.is_exhausted or not any(client.waits for client in self.clients)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "pool"):
            return
        used_bytes = sum(map(len, self.pool.lent.values()))
        assert self.pool.used_bytes == used_bytes == sum(client.frames.held_bytes for client in self.clients)
        assert [client.frames.unread_bytes for client in self.clients] == [it.unread_bytes for it in self.clients]
        assert all(frame == payload for frame, payload in self.kept)
        if any(client.waits for client in self.clients):
            assert self.pool.is_exhausted or self.turns, "nobody would call who waits"

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for number in range(len(self.clients)):
            self.take(number, 1 << 30, keeps=False)
            self.close(number)
        assert self.pool.used_bytes == 0
        assert not self.pool.lent
        assert self.pool.first_waiter is None


PoolModel.TestCase.settings = settings(max_examples=30, stateful_step_count=50)
TestPoolModel = PoolModel.TestCase
