"""Tables at a terminal's width: what the command is for stays whole; other columns are folded, or named as left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli import common, main
from odradek.cli.common import print_table
from odradek.cli.groups import watch
from odradek.cli.tables import KEPT, table_lines
from odradek.clients.blocking import Consumer
from odradek.testing import Cluster, eventually

TOPIC = "shipments-of-warehouse-0001"
GROUP = "payments-service-in-production"
CLIENT = "payments-worker-on-host-0001"
TRANSACTIONAL_ID = "shipments-service-in-production-0"
LAB = ("--topic", f"{TOPIC}=40", "--members", "3")

COMMANDS = [
    ("topics list", "TOPIC"),
    (f"topics describe {TOPIC}", "PARTITION LEADER ISR"),
    ("configs list", "TYPE"),
    (f"configs describe --topic {TOPIC} --all", "KEY VALUE"),
    ("partitions describe", "TOPIC PARTITION LEADER ISR"),
    (f"partitions offsets {TOPIC}", "TOPIC PARTITION EARLIEST LATEST"),
    (f"partitions producers {TOPIC}:0", "PRODUCER-ID TRANSACTION-START"),
    (f"partitions elect --topic {TOPIC}", "TOPIC PARTITION RESULT"),
    (f"partitions delete-records {TOPIC} --before 0", "TOPIC PARTITION EARLIEST"),
    (f"partitions reassign --topic {TOPIC} --partition 2 --replicas 1 --wait", "TOPIC PARTITION TO"),
    ("brokers list", "ADDRESS"),
    ("brokers describe", "BYTES"),
    ("brokers log-dirs", "TOPIC PARTITION BYTES"),
    ("brokers versions", "TO"),
    ("brokers features", "TO"),
    ("brokers drain 1 --dry-run", "TOPIC PARTITION TO"),
    ("groups list", "STATE"),
    (f"groups offsets {GROUP}", "TOPIC PARTITION LAG"),
    (f"groups describe {GROUP}", "TOPIC PARTITION LAG"),
    (f"groups describe {GROUP} --state", "STATE #MEMBERS"),
    (f"groups members {GROUP} --verbose", "#PARTITIONS"),
    (f"groups history {GROUP}", "CAUSE"),
    (f"groups watch {GROUP} --count 1", "#PARTITIONS LAG LAG/S"),
    (f"groups watch {GROUP} --count 1 --partitions", "TOPIC PARTITION LAG LAG/S"),
    (f"groups reset idle-group --topic {TOPIC} --to-earliest", "TOPIC PARTITION NEW-OFFSET"),
    ("groups tree", "STATE"),
    ("transactions list", "TRANSACTIONAL-ID STATE"),
    (f"transactions describe {TRANSACTIONAL_ID}", "TRANSACTIONAL-ID STATE TOPIC-PARTITIONS"),
    (f"transactions find-hanging {TOPIC}", "TOPIC PARTITION PRODUCER-ID"),
    (f"lab assign {' '.join(LAB)}", "MEMBER COUNT"),
    (f"lab compare {' '.join(LAB)}", "STRATEGY MOVED STOPPED"),
    (f"lab what-if {' '.join(LAB)} --add-member 1", "MEMBER"),
    ("lab generations --members 2 --partitions 4 --change joins --generation range", "SETTLED-S"),
    ("pipeline status PIPELINE", "STATE LAG ERROR"),
    ("pipeline list PIPELINE", "TO"),
]  # fmt: skip


class Terminal:
    """Runs commands at a terminal of a given width against a cluster that has a topic and a group with a member."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._servers, self._folder = cluster.bootstrap_servers, folder

    def run(self, command: str) -> Result:
        line = [str(self._folder / "pipeline.toml") if word == "PIPELINE" else word for word in command.split()]
        if command.startswith("groups tree"):
            line += ["--metadata", f"sqlite:///{self._folder}/metadata.sqlite"]
        elif line[0] not in ("lab", "pipeline"):
            line += ["-b", self._servers]
        result = CliRunner().invoke(main, line)
        assert result.exit_code == 0, (result.output, result.exception)
        return result


@pytest.fixture(scope="module", name="terminal")
def fixture_terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("cluster")
    example = CliRunner().invoke(main, ["pipeline", "example", "offline"])
    (folder / "pipeline.toml").write_text(example.output)
    factors = {f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")}
    factors["group.rebalance.journal.enable"] = "true"
    with Cluster(brokers=2, config=factors, data_dir=folder) as cluster:
        terminal = Terminal(cluster, folder)
        terminal.run(f"topics create {TOPIC} -p 3 -r 1")
        terminal.run(f"groups reset idle-group -t {TOPIC} --to-latest --execute")
        cluster.transactions.hang(TOPIC)
        with (
            cluster.producer(transactional_id=TRANSACTIONAL_ID) as producer,
            Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, client_id=CLIENT) as consumer,
        ):
            producer.begin_transaction()
            for number in range(3):
                producer.send(TOPIC, b"v", partition=number).result()
            eventually(lambda: consumer.poll(100) or consumer.assignment())
            consumer.commit()
            eventually(lambda: "joined" in terminal.run(f"groups history {GROUP} --json").output)
            yield terminal


@pytest.mark.parametrize(("command", "kept"), COMMANDS)
def test_each_table_fits_the_terminal_and_keeps_what_it_is_for(
    terminal: Terminal, command: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, Any]] = []

    def draw(columns: Any, rows: Any, width: int | None) -> Any:
        drawn.append((columns, rows))
        return table_lines(columns, rows, width)

    monkeypatch.setattr(common, "table_lines", draw)
    monkeypatch.setattr(watch, "table_lines", draw)
    assert "--wide" in terminal.run(f"{' '.join(command.split()[:2])} --help").output
    terminal.run(f"{command} --wide")
    assert drawn
    for columns, rows in drawn:
        for width in (80, 100, 120, 200):
            lines, hidden = table_lines(columns, rows, width)
            assert not set(hidden) & {*KEPT, *kept.split()}
            assert max(map(len, lines)) <= width
            text = "\n".join(lines)
            cells = [cell for row in rows for name, cell in zip(columns, row, strict=True) if name in kept.split()]
            assert all(word in text for cell in cells if cell is not None for word in str(cell).split())
        assert hidden == []
    assert set(kept.split()) <= {name for columns, _ in drawn for name in columns}


def test_text_is_folded_before_a_column_is_dropped_and_kept_columns_are_wider_than_the_terminal_at_worst() -> None:
    columns, rows = ("TOPIC", "CONSUMER-ID", "HOST", "LAG"), [("t" * 30, "c" * 36, "/127.0.0.1", 7)]
    assert table_lines(columns, rows, 69) == (
        [
            "TOPIC                           CONSUMER-ID           HOST        LAG",
            "tttttttttttttttttttttttttttttt  cccccccccccccccccccc  /127.0.0.1    7",
            "                                cccccccccccccccc",
        ],
        [],
    )
    lines, hidden = table_lines(columns, rows, 60)
    assert hidden == ["HOST"]
    lines, hidden = table_lines(columns, rows, 20)
    assert (lines[1], hidden) == (f"{'t' * 30}    7", ["CONSUMER-ID", "HOST"])


def test_a_cause_is_folded_between_words() -> None:
    lines, _ = table_lines(("TIME", "CAUSE"), [("12:00", "a member left when its session timed out")], 30)
    assert lines == ["TIME   CAUSE", "12:00  a member left when its", "       session timed out"]


def test_a_terminal_shows_what_fits_and_names_the_rest(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(common, "terminal_width", lambda: 20)
    common.print_table(("TOPIC", "ID"), [("t" * 10, "i" * 20)])
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1:] == ["t" * 10]
    assert shown.err == "not shown: ID (--wide shows all)\n"


# ---- Tables in files and pipes ---------------------------------------------------------------------------------------


def test_a_file_gets_aligned_columns_with_numbers_to_the_right_and_lines_that_are_not_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "x" * 500
    print_table(("TOPIC", "LAG", "HOST"), [("t", 5, None), (name, None, "h"), ("u", 1000, None)])
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC" + " " * 495 + "   LAG  HOST",
        "t" + " " * 499 + "     5  -",
        name + "     -  h",
        "u" + " " * 499 + "  1000  -",
    ]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "STATE"), [])
    assert capsys.readouterr().out == "GROUP  STATE\n"
