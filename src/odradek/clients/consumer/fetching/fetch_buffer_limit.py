"""Divides the memory for prefetched records (`queued.max.messages.kbytes`) between brokers."""

from collections.abc import Iterable, Mapping, Sequence

from odradek.clients.consumer.subscription_state import TopicPartitionState


class FetchBufferLimit:
    """Divides `limit_bytes` between buffered records and fetches in flight.

    Sizes are compressed bytes, as received. Each fetch in flight may exceed the limit by one batch, because brokers
    return at least one (KIP-74).
    """

    def __init__(self, limit_bytes: int, fetch_max_bytes: int) -> None:
        self._limit = limit_bytes
        self._fetch_max_bytes = fetch_max_bytes

    def shares(
        self, idle: Sequence[int], pending: Mapping[int, int], states: Iterable[TopicPartitionState]
    ) -> dict[int, int]:
        """Return the bytes to request now from each of the `idle` brokers; brokers that must wait are absent.

        `pending` has the bytes of the fetches in flight, by broker. A fetch starts only with room for a full one or
        for half of the limit, because many small fetches cost more. If paused partitions fill the memory, their
        records are dropped, and fetched again after `resume`.
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
