"""A page is what Prometheus' own parser reads."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.counters import Histogram
from odradek.broker.observing import catalog
from odradek.broker.observing.exposition import Family, render


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
