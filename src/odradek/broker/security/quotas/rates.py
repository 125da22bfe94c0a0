"""Rates over a sliding window and token buckets, with the throttle times that follow from them. Pure.

A `Rate` sums values in samples, of which the oldest expires as a whole. If it is above the limit, the throttle time
is what the excess takes at the limit's rate: `(rate - limit) / limit * window`. A `TokenBucket` (KIP-599) allows
bursts.
"""

from collections import deque


class Rate:
    """Values per second over the last `samples` samples of `sample_s` seconds, Kafka's `Rate`."""

    __slots__ = ("_samples", "_total", "_values", "sample_s")

    def __init__(self, samples: int, sample_s: float) -> None:
        self._samples = samples
        self.sample_s = sample_s
        self._values: deque[list[float]] = deque()  # [start, sum], oldest first
        self._total = 0.0

    @property
    def full_window_s(self) -> float:
        """The shortest time over which a rate is measured."""
        return max(self._samples - 1, 1) * self.sample_s

    def record(self, value: float, now_s: float) -> None:
        """Add a value; a negative one takes back what was added."""
        self._expire(now_s)
        if not self._values or now_s - self._values[-1][0] >= self.sample_s:
            self._values.append([now_s, 0.0])
        self._values[-1][1] += value
        self._total += value

    def throttle_time_s(self, limit: float, now_s: float) -> float:
        """Return for how many seconds a client with this rate has to wait; 0 if the rate is within the limit."""
        self._expire(now_s)
        return max(self._total / limit - self._window_s(now_s), 0.0) if self._values else 0.0

    def per_second(self, now_s: float) -> float:
        """Return the rate that is compared with the limit."""
        self._expire(now_s)
        return max(self._total / self._window_s(now_s), 0.0) if self._values else 0.0

    def _window_s(self, now_s: float) -> float:
        elapsed_s = now_s - self._values[0][0]
        missing = max(self._samples - 1 - int(elapsed_s / self.sample_s), 0)
        return max(elapsed_s + missing * self.sample_s, self.sample_s)

    def is_idle(self, now_s: float) -> bool:
        """Return whether all values have expired."""
        self._expire(now_s)
        return not self._values

    def _expire(self, now_s: float) -> None:
        values, oldest_s = self._values, now_s - self._samples * self.sample_s
        while values and values[0][0] <= oldest_s:
            self._total -= values.popleft()[1]
        if not values:
            self._total = 0.0


class SimpleRate(Rate):
    """A `Rate` over the time since its first sample, Kafka's `SimpleRate`: no burst is allowed after a pause."""

    __slots__ = ()

    def _window_s(self, now_s: float) -> float:
        return max(now_s - self._values[0][0], self.sample_s)


class TokenBucket:
    """Tokens that are filled up at the limit's rate to as many as the whole window allows, Kafka's `TokenBucket`."""

    __slots__ = ("_tokens", "_updated_s", "_window_s", "rate")

    def __init__(self, samples: int, sample_s: float) -> None:
        self.rate = Rate(samples, sample_s)
        """The rate of the tokens that were taken; it limits nothing."""
        self._window_s = samples * sample_s
        self._tokens: float | None = None  # None: full
        self._updated_s = 0.0

    def record(self, tokens: float, limit: float, now_s: float) -> None:
        """Take tokens, which may leave a debt; a negative number gives tokens back."""
        self._tokens = min(self._available(limit, now_s) - tokens, limit * self._window_s)
        self._updated_s = now_s
        self.rate.record(tokens, now_s)

    def throttle_time_s(self, limit: float, now_s: float) -> float:
        """Return how many seconds the debt takes; 0 without a debt."""
        return max(-self._available(limit, now_s) / limit, 0.0)

    def is_idle(self, now_s: float) -> bool:
        """Return whether the bucket is likely to be full: nothing was taken for the length of its window."""
        return self._tokens is None or (self._tokens >= 0 and now_s - self._updated_s >= self._window_s)

    def _available(self, limit: float, now_s: float) -> float:
        most = limit * self._window_s
        return most if self._tokens is None else min(most, self._tokens + (now_s - self._updated_s) * limit)
