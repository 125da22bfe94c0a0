"""Counting is adding, and a histogram counts everything once."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.counters import MILLISECONDS, Histogram, RequestCounters


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
