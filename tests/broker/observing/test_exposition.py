"""A page is what Prometheus' own parser reads."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.counters import MILLISECONDS, Histogram, RequestCounters
from odradek.broker.observing import catalog
from odradek.broker.observing.catalog import Family
from odradek.broker.observing.exposition import render


def histogram(*values: float) -> Histogram:
    made = Histogram()
    for value in values:
        made.observe(value)
    return made


FAMILIES = [
    Family(catalog.BYTES_IN, [(("t",), 5), (('q"uo\\te\n',), 2**53)]),
    Family(catalog.LEADER_COUNT, [((), 3)]),
    Family(catalog.TOTAL_TIME, [(("Fetch",), histogram(0.2, 30, 1e9))]),
]


def test_a_page_has_every_sample() -> None:
    content_type, page = render(FAMILIES, "")
    assert content_type.startswith("text/plain; version=0.0.4")
    found = {family.name: family for family in text_string_to_metric_families(page.decode())}
    bytes_in = found["kafka_server_brokertopicmetrics_bytesin"]
    assert bytes_in.type == "counter"
    assert {sample.labels["topic"]: sample.value for sample in bytes_in.samples} == {"t": 5, 'q"uo\\te\n': 2**53}
    assert [sample.value for sample in found["kafka_server_replicamanager_leadercount"].samples] == [3]
    times = found["kafka_network_requestmetrics_totaltimems"]
    buckets = {sample.labels["le"]: sample.value for sample in times.samples if sample.name.endswith("_bucket")}
    assert (buckets["0.1"], buckets["0.25"], buckets["50.0"], buckets["10000.0"], buckets["+Inf"]) == (0, 1, 2, 2, 3)
    assert {sample.name: sample.value for sample in times.samples}[
        "kafka_network_requestmetrics_totaltimems_count"
    ] == 3
    assert "process_resident_memory_bytes" in found


def test_a_scraper_that_prefers_openmetrics_gets_it() -> None:
    content_type, page = render(FAMILIES, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
    found = {family.name: family for family in parse_openmetrics(page.decode())}
    bytes_in = found["kafka_server_brokertopicmetrics_bytesin"]
    assert {sample.labels["topic"]: sample.value for sample in bytes_in.samples} == {"t": 5, 'q"uo\\te\n': 2**53}
    times = found["kafka_network_requestmetrics_totaltimems"]
    assert {sample.value for sample in times.samples if sample.name.endswith("_count")} == {3}
    assert "process_resident_memory_bytes" in found


# ---- Counters --------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 20_000)))
def test_a_histogram_counts_every_value_once_and_below_its_bound(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    assert sum(histogram.counts) == len(values)
    for number, bound in enumerate(MILLISECONDS):
        assert sum(histogram.counts[: number + 1]) == sum(value <= bound for value in values)


@given(st.lists(st.floats(0, 20_000)), st.lists(st.floats(0, 20_000)))
def test_histograms_add_up(first: list[float], second: list[float]) -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in first:
        one.observe(value)
        both.observe(value)
    for value in second:
        other.observe(value)
        both.observe(value)
    before = list(other.counts)
    one.add(other)
    assert one.counts == both.counts
    assert other.counts == before


@given(st.lists(st.floats(0, 20_000), max_size=20))
def test_request_counters_observe_as_their_histograms_do(times: list[float]) -> None:
    counters, expected = RequestCounters(), Histogram()
    for time in times:
        counters.served(10, time, time)
        counters.awaited(time, time)
        counters.answered(20, time)
        expected.observe(time)
    assert counters.queue_time.counts == counters.total_time.counts == expected.counts
    assert counters.queue_time.total == counters.total_time.total == expected.total
    assert (counters.requests, counters.request_bytes) == (len(times), 10 * len(times))
    assert counters.response_bytes == 20 * len(times)
