"""Reads the rates and throttle times of clients that have a quota, by Kafka's types of quotas."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Final, Protocol

from odradek.broker.interfaces import HasQuotas, HasServer
from odradek.broker.observing import catalog
from odradek.broker.observing.exposition import Family, Sample
from odradek.broker.security.quotas.client_quotas import QuotaKind

SERIES_SHOWN: Final = 200
"""Limit of series of each metric: clients can invent any number of client ids."""
_TYPES: Final[Sequence[tuple[QuotaKind, str, tuple[catalog.Metric, catalog.Metric]]]] = (
    ("produce", "Produce", catalog.PRODUCE_QUOTA),
    ("fetch", "Fetch", catalog.FETCH_QUOTA),
    ("request", "Request", catalog.REQUEST_QUOTA),
    ("mutation", "ControllerMutation", catalog.MUTATION_QUOTA),
)


class _Broker(HasQuotas, HasServer, Protocol):
    """The parts that have quotas."""


def quotas(broker: _Broker) -> Iterator[Family | None]:
    """Yield the metrics of quotas: of clients that are throttled for longest, then of the fastest."""
    left_out: list[Sample] = []
    for kind, name, metrics in _TYPES:
        usage = broker.quotas.usage(kind)
        shown = nlargest(SERIES_SHOWN, usage.items(), key=lambda each: each[1][::-1])
        left_out.append(((name,), len(usage) - len(shown)))
        for number, metric in enumerate(metrics):
            yield Family(metric, [((user or "", client or ""), values[number]) for (user, client), values in shown])
        yield None
    rates = broker.server.ip_rates()
    fastest = nlargest(SERIES_SHOWN, rates.items(), key=lambda each: each[1])
    yield Family(catalog.IP_CONNECTION_RATE, [((ip,), rate) for ip, rate in fastest])
    left_out.append((("ip",), len(rates) - len(fastest)))
    yield Family(catalog.QUOTA_SERIES_LEFT_OUT, left_out)
