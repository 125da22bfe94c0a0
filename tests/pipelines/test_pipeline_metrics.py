"""Metrics of pipelines, as Prometheus reads them."""

import socket
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from odradek.cli import main
from odradek.model import ConfigurationError
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.metrics import served_metrics
from odradek.pipelines.progress import Figures
from odradek.pipelines.status import State, Status


def scrape(host: str, port: int) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_rows_lag_bad_rows_and_the_time_of_the_batch_are_served_until_the_end() -> None:
    figures = Figures(records_in=9, records_out=7, bad_rows=2, batches=3, lag=4, batch_seconds=0.5, batch_ended_at=99.5)
    statuses: list[Status] = []
    with served_metrics(("127.0.0.1", 0), statuses) as address:
        assert ("odradek_pipeline_records_in_total", "a") not in scrape(*address)
        statuses[:] = [
            Status(name="a", kind="real_time", state=State.RESTARTING, figures=figures, restarts=1),
            Status(name="b", kind="mirror", state=State.RUNNING),
        ]
        found = scrape(*address)
    expected = {
        "records_in_total": 9,
        "records_out_total": 7,
        "records_late_total": 0,
        "bad_rows_total": 2,
        "tombstones_total": 0,
        "batches_total": 3,
        "restarts_total": 1,
        "lag": 4,
        "last_batch_duration_seconds": 0.5,
        "last_batch_timestamp_seconds": 99.5,
    }
    of_a = {
        name.removeprefix("odradek_pipeline_"): value for (name, *labels), value in found.items() if labels == ["a"]
    }
    assert of_a == expected
    assert ("odradek_pipeline_lag", "b") not in found
    states = {labels for labels, value in found.items() if labels[0] == "odradek_pipeline_state" and value}
    assert states == {("odradek_pipeline_state", "a", "restarting"), ("odradek_pipeline_state", "b", "running")}


def test_an_address_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            pytest.raises(
                ConfigurationError, match=f"cannot serve metrics at 127.0.0.1:{port}: Address already in use"
            ),
            served_metrics(("127.0.0.1", port), []),
        ):
            pass


def test_metrics_for_other_machines_need_a_permission(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    done = CliRunner().invoke(main, ["pipeline", "run", "--metrics-listen", "0.0.0.0:0", str(file)])
    assert (done.exit_code, "add --allow-anonymous-network" in done.output) == (2, True)
