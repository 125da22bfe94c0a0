"""The measuring tools of `odradek bench`: turns, medians, ratios, aims, and the C functions of librdkafka."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import assignor_grid, assignor_speed, compare, comparisons
from bench.clients.librdkafka import CLIENT_SETTINGS, CConsumer, CProducer, Messages
from bench.clients.processes import client_command
from bench.clients.workloads import create_topic
from bench.measure import Aim, Row, cpu_seconds, print_rows, rounds, turns
from bench.peers.kafka_assignors import Case, GridCell
from bench.peers.security import BenchSecurity
from bench.peers.sides import Side, odradek_side
from odradek.cli import bench, main
from odradek.model import SecurityProtocol, UnavailableError
from odradek.testing import Cluster

pytestmark = pytest.mark.long


def row(ours: float, theirs: float, aim: Aim | None = None) -> Row:
    return Row(what="speed", unit="MiB/s", figures={"us": ours, "them": theirs}, of="us", to="them", aim=aim)


def test_sides_take_turns_and_every_other_round_goes_backwards():
    order: list[str] = []
    sides = {name: lambda name=name: (order.append(name), {"figure": 1.0})[1] for name in "ab"}
    rounds(3, sides)
    assert "".join(order) == "abbaab"


def test_a_figure_is_the_median_of_its_rounds():
    figures = iter([5.0, 100.0, 1.0])
    assert rounds(3, {"a": lambda: {"figure": next(figures)}}) == {"a": {"figure": 5.0}}


def test_each_run_is_announced():
    said: list[str] = []
    rounds(1, {"a": lambda: {"said": float(len(said))}, "b": lambda: {"said": float(len(said))}}, say=said.append)
    assert said == ["round 1 of 1, a", "round 1 of 1, b"]


@pytest.mark.parametrize(
    ("aim", "ratio", "met"),
    [
        (Aim(1.5), 1.5, True),
        (Aim(1.5), 1.49, False),
        (Aim(1.5), 1.496, True),
        (Aim(0.5, at_most=True), 0.5, True),
        (Aim(0.5, at_most=True), 0.51, False),
    ],
)
def test_an_aim_compares_the_rounded_ratio(aim, ratio, met):
    assert row(ratio, 1.0, aim).met is met


def test_cpu_is_counted_more_finely_than_in_clock_ticks():
    before = time.process_time()
    ours = cpu_seconds(os.getpid())
    assert before <= ours <= time.process_time()


def test_a_process_that_has_ended_has_no_cpu_figure():
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_seconds(2**22 + 1)  # beyond Linux's largest process id


def test_a_row_without_an_aim_meets_none():
    assert row(1.0, 2.0).met is None


def test_without_a_peer_there_is_no_ratio(capsys):
    alone = Row(what="speed", unit="MiB/s", figures={"us": 3.0}, of="us", to=None, aim=Aim(1.5))
    print_rows("produce", [alone], as_json=True)
    print_rows("produce", [alone], as_json=False)
    first, *table = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {"title": "produce", "what": "speed", "unit": "MiB/s", "us": 3.0}
    assert "ratio" not in "".join(table)


def test_turns_return_every_figure():
    figures = iter([5.0, 100.0, 1.0])
    assert turns(3, {"a": lambda: {"figure": next(figures)}}) == {"a": {"figure": [5.0, 100.0, 1.0]}}


def test_a_row_as_json_has_both_figures_their_ratio_and_whether_the_aim_is_met(capsys):
    print_rows("produce", [row(3.0, 2.0, Aim(1.5))], as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "title": "produce",
        "what": "speed",
        "unit": "MiB/s",
        "us": 3.0,
        "them": 2.0,
        "ratio": 1.5,
        "of": "us",
        "to": "them",
        "aim": "≥ 1.5",
        "met": True,
    }


def test_a_table_says_which_aims_are_met(capsys):
    print_rows("produce", [row(3.0, 2.0, Aim(1.5)), row(1.0, 2.0, Aim(1.5))], as_json=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "speed" in line]
    assert ["yes" in lines[0], "no" in lines[1]] == [True, True]


def test_records_of_the_c_producer_are_read_by_the_c_consumer():
    pytest.importorskip("confluent_kafka")
    with Cluster() as cluster:
        create_topic(cluster.bootstrap_servers, topic="records", partitions=1)
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = CProducer(settings)
        producer.end_offset("records", 0)
        producer.produce("records", 0, Messages([b"a", b"bb", b""], keys=[b"1", b"2", b"3"]))
        producer.flush(30)
        assert producer.end_offset("records", 0) == 3
        producer.close()
        consumer = CConsumer(settings)
        consumer.start("records", 0)
        received = 0
        while received < 3:
            count = consumer.consume(30)
            assert count
            received += count
        consumer.close()
    assert received in (3, 4)  # see `consume`


def test_a_setting_unknown_to_librdkafka_is_named_in_the_error():
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ValueError, match=r"no\.such\.key"):
        CProducer({"no.such.key": 1})


def test_an_unknown_comparison_is_refused_with_the_list_of_known_ones():
    result = CliRunner().invoke(main, ["bench", "compare", "--only", "produce,speed"])
    assert result.exit_code == 2
    assert "'speed'" in result.output
    assert all(name in result.output for name in compare.COMPARISONS)


def test_an_unavailable_peer_is_reported_in_one_sentence(monkeypatch):
    def unreachable(security: object) -> Side:
        raise UnavailableError("there is no peer today")

    monkeypatch.setattr(compare, "kafka_side", unreachable)
    result = CliRunner().invoke(main, ["bench", "compare"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "odradek: there is no peer today")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--acls", "3", "--security", "ssl"], "--security sasl_plaintext or sasl_ssl"),
        (["--acls", "3"], "--security sasl_plaintext or sasl_ssl"),
        (["--peer", "kafak"], "neither kafka nor a source tree"),
    ],
)
def test_options_of_a_comparison_that_do_not_fit_are_refused(options, said):
    result = CliRunner().invoke(main, ["bench", "compare", *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_a_comparison_with_security_logs_in_and_has_acls_on_both_sides(monkeypatch, tmp_path):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(comparisons, "_REQUESTS", 200)
    monkeypatch.setattr(comparisons, "settle", lambda: None)
    made = []

    def other_side(security: BenchSecurity) -> Side:
        made.append(security)
        return Side(name="other", make=odradek_side(None, security).make, security=security)

    monkeypatch.setattr(compare, "kafka_side", other_side)
    asked = ["--only", "requests,logins", "--security", "sasl_ssl", "--acls", "3", "--seconds", "1", "--rounds", "1"]
    result = CliRunner().invoke(main, ["bench", "compare", *asked, "--warm-up", "0", "--json"], catch_exceptions=False)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["what"] for row in rows] == ["one record a request"] * 3 + ["connections and logins"] * 2
    assert all(row["odradek"] > 0 and row["other"] > 0 for row in rows)
    assert (made[0].protocol, made[0].acls) == (SecurityProtocol.SASL_SSL, 3)
    assert CLIENT_SETTINGS not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_runs_both_sides_and_leaves_nothing(monkeypatch, tmp_path):
    """Ours stands in for the peer: what is tested is the harness, with real processes."""
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(comparisons, "_RECORDS", (1024,))
    monkeypatch.setattr(comparisons, "_BATCHES", (16_384,))
    monkeypatch.setattr(comparisons, "_PARTITIONS", (3,))
    monkeypatch.setattr(comparisons, "settle", lambda: None)
    other = Side(name="other", make=odradek_side().make)
    monkeypatch.setattr(compare, "kafka_side", lambda security: other)
    asked = ["--only", "fetch,start", "--rounds", "1", "--mib", "8", "--warm-up", "0", "--json"]
    result = CliRunner().invoke(main, ["bench", "compare", *asked], catch_exceptions=False)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [found["what"] for found in rows] == [
        "start to the first acknowledged record",
        "of that, until it serves",
        *["fetch, 1 KiB records, 16 KB batches, 3 partitions"] * 3,
    ]
    assert all(found["odradek"] > 0 and found["other"] > 0 for found in rows[:3])
    assert list(tmp_path.iterdir()) == []


# ---- Assignors -------------------------------------------------------------------------------------------------------


def test_five_changes_of_a_group_are_measured_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    def kafkas(case: Case, limit_s: float) -> Callable[[], Mapping[str, float]]:
        groups.append(sum(len(member.owned) for member in case.group.members.values()))
        return lambda: {"seconds": 100.0, "peak_mib": 1e6}

    monkeypatch.setattr(assignor_speed, "_kafkas", kafkas)
    asked = ["bench", "assignors", "--members", "4", "--topics", "2", "--partitions", "8", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["what"] for row in rows[::2]] == [
        "fresh",
        "one leaves",
        "one joins",
        "one odd subscription",
        "all subscriptions different",
    ]
    assert groups == [0, 12, 16, 12, 0]
    assert all(row["met"] for row in rows)


def test_the_grid_has_each_group_with_at_least_one_partition_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    cells: list[GridCell] = []

    def kafkas(asked: Sequence[GridCell], warm_up_s: float, measured_s: float) -> list[float]:
        cells.extend(asked)
        return [1e6] * len(asked)

    monkeypatch.setattr(assignor_grid, "run_kafka_grid", kafkas)
    sizes = ["--members", "4", "--members", "9", "--ratio", "5", "--topics", "5", "--topics", "30"]
    asked = ["bench", "assignor-grid", *sizes, "--warm-up", "0", "--seconds", "0"]
    done = CliRunner().invoke(main, [*asked, "--json"], catch_exceptions=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["what"] == "uniform, homogeneous, full: 4 × 5, 5 topics"
    assert rows[-1]["what"] == "range, heterogeneous, incremental: 9 × 5, 30 topics"
    assert len(rows) == len(cells) == 2 * 2 * 2 * 3
    assert all(row["met"] and row["odradek"] > 0 for row in rows)
    means = CliRunner().invoke(main, asked, catch_exceptions=False).stdout
    assert "geometric means" in means


# ---- The command -----------------------------------------------------------------------------------------------------


def test_a_source_tree_has_the_benchmarks():
    assert "compare" in CliRunner().invoke(bench.load(bench.SOURCE_TREE), ["--help"]).output


def test_an_installed_package_says_how_to_get_the_benchmarks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(bench, "command", bench.load(tmp_path))
    result = CliRunner().invoke(main, ["bench", "compare", "--peer", "kafka", "--help"])
    assert result.exit_code == 1
    assert "`make bench` in a source tree" in result.output


def test_the_benchmarks_run_in_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A client of a benchmark is a process of its own, which has to find the source tree, too."""
    monkeypatch.chdir(tmp_path)
    command = client_command("none")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "KeyError: 'none'" in done.stderr
