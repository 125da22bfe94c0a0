"""The names are Kafka's by one rule, and the table of the docs is the catalogue."""

from pathlib import Path

import pytest

from odradek.broker.observing.catalog import ALL, Kind, prometheus_name

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


@pytest.mark.parametrize(
    ("mbean", "name"),
    [
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", "kafka_server_brokertopicmetrics_bytesin"),
        ("kafka.log:type=Log,name=Size", "kafka_log_log_size"),
        ("kafka.network:type=RequestMetrics,name=TotalTimeMs", "kafka_network_requestmetrics_totaltimems"),
        (
            "kafka.server:type=socket-server-metrics,name=connection-creation-total",
            "kafka_server_socket_server_metrics_connection_creation",
        ),
        (
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
        ),
    ],
)
def test_a_name_is_what_jmx_exporters_make_of_kafkas(mbean: str, name: str) -> None:
    assert prometheus_name(mbean) == name


def test_no_name_is_there_twice_and_counters_end_in_total() -> None:
    names = [metric.exposed_name for metric in ALL]
    assert len(set(names)) == len(names)
    assert all(metric.exposed_name.endswith("_total") == (metric.kind is Kind.COUNTER) for metric in ALL)
    assert all(metric.help.endswith(".") for metric in ALL)


def test_the_table_in_the_docs_is_the_catalogue() -> None:
    expected = [
        f"| {f'`{metric.mbean}`' if metric.mbean else '–'} | `{metric.exposed_name}` | "
        f"{', '.join(metric.labels) or '–'} | {metric.kind.value} | {metric.help} |"
        for metric in ALL
    ]
    found = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(("| `kafka", "| – | `"))]
    assert found == expected
