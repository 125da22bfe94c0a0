"""Divides the memory of prefetched records between brokers; `settings` has its size, `queued.max.messages.kbytes`."""

from collections.abc import Iterable, Mapping, Sequence

from odradek.clients.consumer.subscription_state import TopicPartitionState


class FetchBufferLimit:
    """Divides `limit_bytes` between buffered records and fetches in flight.

    Sizes are those of the records as received, compressed. The limit is exceeded by at most one batch per fetch in
    flight, as brokers return at least one (KIP-74).
    """

    def __init__(self, limit_bytes: int, fetch_max_bytes: int) -> None:
        self._limit = limit_bytes
        self._fetch_max_bytes = fetch_max_bytes

    def shares(
        self, idle: Sequence[int], pending: Mapping[int, int], states: Iterable[TopicPartitionState]
    ) -> dict[int, int]:
        """Return the bytes that each of the `idle` brokers may return now; a broker without a share waits.

        `pending` are those of fetches in flight. Fetches begin when there is room for a full one, or for half of the
        limit: many small ones would cost more. Records of paused partitions are dropped, and fetched again after
        `resume`, if they would leave nothing for others.
        """
        full = min(self._fetch_max_bytes, self._limit // (len(idle) + len(pending)) or 1)
        wanted = min(full, self._limit // 2 or 1)
        buffering = [state for state in states if state.buffered_bytes]
        room = self._limit - sum(pending.values()) - sum(state.buffered_bytes for state in buffering)
        if room < wanted and not pending and all(state.is_paused for state in buffering):
            for state in buffering:
                state.drop_buffered()
            room = self._limit
        shares = {}
        for node_id in idle:
            if room < wanted:
                break
            shares[node_id] = min(full, room)
            room -= shares[node_id]
        return shares
