"""Families of samples as a page for Prometheus, in its text format or in OpenMetrics, as the scraper likes it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from odradek.metrics.catalog import Kind, Metric
from odradek.metrics.counters import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as PrometheusFamily

Sample = tuple[tuple[str, ...], float | Histogram]
"""The labels' values in the order of the metric's labels, and a number, or a histogram that changes no more."""


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric."""

    metric: Metric
    samples: Sequence[Sample]


def load() -> None:
    """Import what `render` needs, which takes a tenth of a second: better before somebody waits."""
    import prometheus_client  # noqa: F401


def render(families: Iterable[Family], accept: str) -> tuple[str, bytes]:
    """`(content type, page)` with the families, and what prometheus_client knows of the process and of Python.

    `accept` is the scraper's header. Takes 5 µs for each sample, and may run on another thread.
    """
    from prometheus_client import REGISTRY
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)

    class Page:
        """A registry, as the encoder sees one."""

        def collect(self) -> "Iterator[PrometheusFamily]":
            yield from map(_prometheus, families)
            yield from REGISTRY.collect()

    page: bytes = encode(Page())
    return content_type, page


def _prometheus(family: Family) -> "PrometheusFamily":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    metric = family.metric
    if metric.kind is Kind.HISTOGRAM:
        found = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in family.samples:
            assert isinstance(value, Histogram)
            bounds = [*map(str, value.bounds), "+Inf"]
            found.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
        return found
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    simple = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in family.samples:
        assert not isinstance(value, Histogram)
        simple.add_metric(labels, value)
    return simple
