"""Reads all metrics of a broker, in a few µs per partition: those of the catalogue's rows, and those that share a walk.

A broker that has not started has fewer metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from typing import Final

from odradek.broker.counters import Histogram, RequestCounters
from odradek.broker.interfaces import BrokerParts
from odradek.broker.log.log import Log
from odradek.broker.observing import catalog
from odradek.broker.observing.catalog import Family, Metric, Sample
from odradek.broker.observing.consumer_group_figures import consumer_groups
from odradek.broker.security.quotas.client_quotas import QuotaKind
from odradek.broker.serving.request_metrics import api_name
from odradek.model import ErrorCode

_LOGS_AT_ONCE: Final = 1000
"""Limit of logs read in one iteration of the event loop."""
_OFFSETS_SHOWN: Final = 20_000
"""Limit of committed offsets that are shown: clients can create any number of groups."""
_LATENESS_MS: Final = 300_000
"""Kafka adds this to `transaction.max.timeout.ms` before a transaction counts as late."""
SERIES_SHOWN: Final = 200
"""Limit of series of each metric: clients can invent any number of client ids."""
_TYPES: Final[Sequence[tuple[QuotaKind, str, tuple[Metric, Metric]]]] = (
    ("produce", "Produce", catalog.PRODUCE_QUOTA),
    ("fetch", "Fetch", catalog.FETCH_QUOTA),
    ("request", "Request", catalog.REQUEST_QUOTA),
    ("mutation", "ControllerMutation", catalog.MUTATION_QUOTA),
)


def observe(broker: BrokerParts) -> list[Family]:
    """Return the current value of every metric of the catalogue."""
    return [family for family in steps(broker) if family is not None]


def steps(broker: BrokerParts) -> Iterator[Family | None]:
    """Yield the metrics one by one; yield None during long ones, so that other tasks may run every few ms.

    Later metrics have later values.
    """
    for metric in catalog.ALL:
        if metric.read is not None:
            value = metric.read(broker)
            yield Family(metric, [((), value)] if isinstance(value, int | float) else value)
    yield from _requests(broker)
    yield from quotas(broker)
    yield from _replicas(broker)
    yield from _volumes(broker)
    yield from _cluster(broker)
    yield from _logs(broker)
    yield from _groups(broker)
    yield from _committed_offsets(broker)
    yield from consumer_groups(broker)


def _one(metric: Metric, value: float) -> Family:
    return Family(metric, [((), value)])


def _requests(broker: BrokerParts) -> Iterator[Family]:
    meter = broker.server.meter
    if meter is None:
        return
    errors = broker.counters.errors.items()
    yield Family(
        catalog.ERRORS, [((api_name(key), ErrorCode(code).name.upper()), count) for (key, code), count in errors]
    )
    yield _one(catalog.IDLE, meter.idle_ratio())
    by_api: dict[str, list[RequestCounters]] = {}
    for (name, _), counters in meter.counters.items():
        by_api.setdefault(name, []).append(counters)
    yield Family(catalog.REQUESTS, [(key, counters.requests) for key, counters in meter.counters.items()])
    for metric, pick in _TIMES.items():
        yield Family(metric, _histograms((name, list(map(pick, all_))) for name, all_ in by_api.items()))
    yield Family(
        catalog.REQUEST_BYTES, [((name,), sum(each.request_bytes for each in all_)) for name, all_ in by_api.items()]
    )
    yield Family(
        catalog.RESPONSE_BYTES, [((name,), sum(each.response_bytes for each in all_)) for name, all_ in by_api.items()]
    )


_TIMES: Final[Mapping[Metric, Callable[[RequestCounters], Histogram]]] = {
    catalog.REQUEST_QUEUE_TIME: attrgetter("queue_time"),
    catalog.LOCAL_TIME: attrgetter("local_time"),
    catalog.REMOTE_TIME: attrgetter("remote_time"),
    catalog.RESPONSE_QUEUE_TIME: attrgetter("response_queue_time"),
    catalog.TOTAL_TIME: attrgetter("total_time"),
}


def _histograms(named: Iterable[tuple[str, list[Histogram]]]) -> list[Sample]:
    """Return one histogram per API, the sum over its versions."""
    samples: list[Sample] = []
    for name, histograms in named:
        total = Histogram()
        for histogram in histograms:
            total.add(histogram)
        samples.append(((name,), total))
    return samples


def _replicas(broker: BrokerParts) -> Iterator[Family]:
    led = under_replicated = under_min_isr = at_min_isr = late = 0
    begun_before_ms = broker.runtime.clock.now_ms() - broker.config.transaction_max_timeout_ms - _LATENESS_MS
    for partition in broker.partitions:
        led += 1
        image = broker.image.partition(partition.topic_partition)
        under_replicated += image is not None and len(partition.isr) < len(image.replicas)
        under_min_isr += len(partition.isr) < partition.min_insync_replicas
        at_min_isr += len(partition.isr) == partition.min_insync_replicas
        oldest_ms = partition.log.producers.oldest_transaction_timestamp
        late += oldest_ms is not None and 0 < oldest_ms < begun_before_ms
    yield _one(catalog.LEADER_COUNT, led)
    yield _one(catalog.UNDER_REPLICATED, under_replicated)
    yield _one(catalog.UNDER_MIN_ISR, under_min_isr)
    yield _one(catalog.AT_MIN_ISR, at_min_isr)
    yield _one(catalog.LATE_TRANSACTIONS, late)


def _volumes(broker: BrokerParts) -> Iterator[Family]:
    """Yield the space of the volumes of the data directories that can be used."""
    disk, spaces = broker.runtime.disk, {}
    for directory in broker.logs.directories.paths:
        if directory not in broker.logs.directories.offline:
            with suppress(OSError):
                spaces[directory] = disk.space(directory)
    named = [((disk.absolute(directory),), space) for directory, space in spaces.items()]
    yield Family(catalog.FREE_BYTES, [(labels, space.usable_bytes) for labels, space in named])
    yield Family(catalog.TOTAL_BYTES, [(labels, space.total_bytes) for labels, space in named])


def _cluster(broker: BrokerParts) -> Iterator[Family]:
    """Yield the cluster's metrics. Only the controller counts topics, partitions, brokers, so that sums are right."""
    image = broker.image
    is_controller = image.controller_id == broker.config.broker_id and not broker.fence.is_closed
    partitions = (
        [each for topic in image.topics.values() for each in topic.partitions.values()] if is_controller else []
    )
    yield _one(catalog.ACTIVE_CONTROLLER, is_controller)
    yield _one(catalog.OFFLINE_PARTITIONS, sum(not partition.has_leader for partition in partitions))
    yield _one(catalog.GLOBAL_TOPICS, len(image.topics) if is_controller else 0)
    yield _one(catalog.GLOBAL_PARTITIONS, len(partitions))
    yield _one(catalog.ACTIVE_BROKERS, len(image.brokers) if is_controller else 0)
    yield _one(
        catalog.PREFERRED_IMBALANCE,
        sum(bool(each.replicas) and each.leader != each.replicas[0] for each in partitions),
    )


def _per_log(
    metric: Metric, logs: Sequence[tuple[tuple[str, ...], Log]], read: Callable[[Log], float]
) -> Iterator[Family | None]:
    samples: list[Sample] = []
    for start in range(0, len(logs), _LOGS_AT_ONCE):
        samples += [(labels, read(log)) for labels, log in logs[start : start + _LOGS_AT_ONCE]]
        yield None
    yield Family(metric, samples)


def _logs(broker: BrokerParts) -> Iterator[Family | None]:
    logs = [((topic, str(number)), log) for (topic, number), log in catalog.logs_of(broker).items()]
    yield from _per_log(catalog.LOG_START_OFFSET, logs, lambda log: log.log_start_offset)
    yield from _per_log(catalog.LOG_END_OFFSET, logs, lambda log: log.log_end_offset)
    yield from _per_log(catalog.LOG_SIZE, logs, lambda log: log.segments.size)
    yield from _per_log(catalog.LOG_SEGMENTS, logs, lambda log: len(log.segments.bases))


def _groups(broker: BrokerParts) -> Iterator[Family]:
    machines = list(broker.groups.machines(only_active=True))
    groups = [group for machine in machines for group in machine.groups.by_id.values()]
    kinds = Counter(group.kind for group in groups)
    states = Counter(str(group.state) for group in groups if group.kind == "classic")
    yield _one(catalog.GROUPS, states.total())
    yield _one(catalog.GROUP_OFFSETS, sum(len(machine.offsets) for machine in machines))
    for state, metric in catalog.GROUPS_BY_STATE.items():
        yield _one(metric, states[state])
    yield Family(catalog.GROUP_COUNT, [((kind,), kinds[kind]) for kind in ("classic", "consumer")])


def _committed_offsets(broker: BrokerParts) -> Iterator[Family | None]:
    """Yield the committed offsets, those of groups with members first."""
    groups = [
        (group, machine.offsets.of(group.group_id))
        for machine in broker.groups.machines(only_active=True)
        for group in machine.groups.by_id.values()
    ]
    groups.sort(key=lambda each: each[0].is_empty)
    offsets = (
        ((group.group_id, topic, str(number)), committed.offset)
        for group, of_group in groups
        for (topic, number), committed in tuple(of_group.items())
    )
    samples: list[Sample] = []
    while len(samples) < _OFFSETS_SHOWN and (some := list(islice(offsets, _LOGS_AT_ONCE))):
        samples += some
        yield None
    yield Family(catalog.COMMITTED_OFFSET, samples)


def quotas(broker: BrokerParts) -> Iterator[Family | None]:
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
