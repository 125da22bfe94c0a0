"""The decisions of `groups reset` that need no broker: times, durations, plans in CSV, new offsets."""

import asyncio
import csv
import io
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import click
import pytest

from odradek.cli.groups.reset import _execute, _export, _Reset
from odradek.cli.partition_lists import topic_and_partitions
from odradek.model import ConfigurationError, ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.texts import offset_specs
from odradek.texts.offset_resets import Goal, PartitionOffsets, new_offset
from odradek.texts.offset_specs import BEGINNING, END, Position, duration_ms, offset_range, read_plan, time_ms
from tests.world.jvm import running_jvm

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02T00:00:00", DAY_MS),
        ("1970-01-02T00:00:00.250", DAY_MS + 250),
        ("1970-01-02T00:00:00Z", DAY_MS),
        ("1970-01-02T01:00:00+01:00", DAY_MS),
        ("1970-01-01T23:00:00-0100", DAY_MS),
        ("1970-01-02", DAY_MS),
        ("86400000", DAY_MS),
        ("@1970-01-02", DAY_MS),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, expected: int) -> None:
    assert time_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", DAY_MS),
        ("PT1H", 3_600_000),
        ("PT1.5S", 1500),
        ("pt10m", 600_000),
        ("P2DT1H1M1S", 2 * DAY_MS + 3_661_000),
    ],
)
def test_a_duration_is_iso_8601(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


def test_a_duration_as_a_time_is_that_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 3 * DAY_MS))
    monkeypatch.setattr(offset_specs, "system_runtime", lambda: clock)
    assert time_ms("P1D") == 2 * DAY_MS
    assert time_ms("P9D") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", (BEGINNING, None)),
        ("end", (END, None)),
        ("7", (Position("offset", 7), None)),
        ("-7", (Position("last", 7), None)),
        ("5:10", (Position("offset", 5), Position("offset", 10))),
        ("5..10", (Position("offset", 5), Position("offset", 10))),
        ("5:", (Position("offset", 5), None)),
        (":10", (BEGINNING, Position("offset", 10))),
        ("-10..end", (Position("last", 10), END)),
        ("..", (BEGINNING, None)),
        ("@1970-01-01..1970-01-02T00:00", (Position("time", 0), Position("time", DAY_MS))),
        ("@0..@86400000", (Position("time", 0), Position("time", DAY_MS))),
    ],
)
def test_a_range_has_two_positions_of_one_notation(text: str, expected: tuple[Position, Position | None]) -> None:
    assert offset_range(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01", "5-10", "--5", "10:5", "5:5", "@2..@1", "1..2..3", "a:b"])
def test_other_ranges_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        offset_range(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("t", ("t", None)), ("t:3", ("t", (3,))), ("t:0,4-6, 2", ("t", (0, 4, 5, 6, 2))), ("t:5-5", ("t", (5,)))],
)
def test_partitions_are_numbers_and_ranges(text: str, expected: tuple[str, tuple[int, ...] | None]) -> None:
    assert topic_and_partitions(text) == expected


@pytest.mark.parametrize("text", ["t:", "t:x", "t:1,", "t:3-1", "t:-1", "t:0-999999999", "t:1-2-3", "t:9999999999"])
def test_other_partitions_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not TOPIC or TOPIC:N"):
        topic_and_partitions(text)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "P1M", "P-1D", "PT1H1D", "P1D "])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration such as P7D"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2025-13-01T00:00:00", "12:00"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time such as"):
        time_ms(text)


# ---- plans ----------------------------------------------------------------------------------------------------------


def plan(text: str, groups: Sequence[str] | None = ("g",)) -> list[tuple[int, str, str, int, int]]:
    file = io.BytesIO(text.encode())
    file.name = "plan.csv"
    return [(each.line, each.group, *each.partition, each.offset) for each in read_plan(file, groups)]


NAMES = [
    *(
        "g",
        "my group",
        "a-b_c.d",
        "ünïcode",
        "主",
        "🎈",
        "'g'",
        "#g",
        "",
        "1",
        "a;b",
        "a|b",
        "a\\b",
        r"a\nb",
        "g\u00a0h",
    ),
    *(" g", "g ", "  g  ", " ", "\tg", "g\t", "\u00a0g", "g\u3000", "\ufeffg", "g\ufeff", "\x1fg"),
    *("a,b", ",", "a,", ",a", 'a"b', '"', '""', '"a"', 'a""', '",', ',"', '" ,"'),
    *("a\nb", "a\rb", "a\r\nb", "\n", "\r", "a\n", "\na", 'a"\nb,0,1\nc', "g\nh,t,0,7"),
    *("a\x0bb", "a\x0cb", "a\x1cb", "a\x1eb", "a\x85b", "a\u2028b", "a\u2029b", "a\0b", "\x1b[31m", "\u202eg", "=1+1"),
]


def exported(names: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    resets = [_Reset(name, {}, {}, {TopicPartition("t", 0): number}) for number, name in enumerate(names)]
    _export(resets, is_single=False)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_is_written_and_read_again_is_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = exported([name, "other"], capsys)
    assert [each[1:] for each in plan(text, None)] == [(name, "t", 0, 0), ("other", "t", 0, 1)]
    assert plan(text.replace("\nother", "\r\nother").removesuffix("\n"), None)[0][1] == name


def test_a_plan_of_all_names_is_read_by_csv_readers_of_other_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    text = exported(NAMES, capsys)
    assert [each[1] for each in plan(text, None)] == NAMES
    assert [each[0] for each in csv.reader(io.StringIO(text, newline=""))] == NAMES


@pytest.mark.needs("java", "kafka")
def test_the_csv_library_of_kafkas_tools_reads_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.peers.kafka_peer import kafka_home

    text = exported(NAMES, capsys)
    with running_jvm(f"{kafka_home().jars}/*") as jvm:
        jackson = jvm.com.fasterxml.jackson.dataformat.csv
        schema = jackson.CsvSchema.builder().addColumn("g").addColumn("t").addColumn("p").addColumn("o").build()
        strings = jvm.java.lang.Class.forName("java.lang.String")
        read = getattr(jackson.CsvMapper().readerForMapOf(strings), "with")(schema).readValues(text).readAll()
        assert [each["g"] for each in read] == NAMES


def test_a_terminal_gets_a_plan_without_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert exported(["\x1b[31m\u202e"], capsys) == "␛[31m\\u202e,t,0,0\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("g,t,0,1", [(1, "g", "t", 0, 1)]),
        ("\ufeffg,t,0,1\n", [(1, "g", "t", 0, 1)]),
        ('"g","t",0,1', [(1, "g", "t", 0, 1)]),
        ('"g","t","0","1"\n', [(1, "g", "t", 0, 1)]),
        (' "g" ,\t"t"\t, 0 , 1 ', [(1, "g", "t", 0, 1)]),
        ('" g ",t,0,1', [(1, " g ", "t", 0, 1)]),
        ("g,t,0,1\rh,t,0,2\r", [(1, "g", "t", 0, 1), (2, "h", "t", 0, 2)]),
        ("g,t,0,1\r\n\r\nh,t,0,2", [(1, "g", "t", 0, 1), (3, "h", "t", 0, 2)]),
        (' \n\t\n"g\nh",t,0,1\ni,t,0,2', [(3, "g\nh", "t", 0, 1), (5, "i", "t", 0, 2)]),
        ('a"b,t,0,1', [(1, 'a"b', "t", 0, 1)]),
        ("a\x0bb,t,0,1", [(1, "a\x0bb", "t", 0, 1)]),
    ],
)
def test_a_plan_of_other_tools_is_read(text: str, read: list[object]) -> None:
    assert plan(text, None) == read


@pytest.mark.parametrize(
    "text", ['"g,t,0,1', '"g"x,t,0,1', 'g,"t,0,1', 'g,t,0,"1', '"g" "h",t,0,1', 'h,t,"0"0,1', '"', 'g,t,0,"1""'],
)  # fmt: skip
def test_a_wrong_quotation_mark_is_named_and_other_lines_are_read(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"line 2 has a quotation mark that is not closed, .*; line 3 has 1"):
        plan(f"g,t,1,1\n{text}\nx\n", None)


def test_a_plan_has_a_partition_a_line_with_or_without_its_group() -> None:
    assert plan("t,0,5\n\n t , 1 , 0 \r\n") == [(1, "g", "t", 0, 5), (3, "g", "t", 1, 0)]
    assert plan("g,t,0,5\nt,1,6") == [(1, "g", "t", 0, 5), (2, "g", "t", 1, 6)]
    assert plan("\ufefft,0,5") == plan('"t","0","5"\r') == plan("t, 0, 5\n\n\n") == [(1, "g", "t", 0, 5)]
    assert plan('"a,b",t,0,5\ng,t,0,6', None) == [(1, "a,b", "t", 0, 5), (2, "g", "t", 0, 6)]


@pytest.mark.parametrize(
    ("text", "groups", "said"),
    [
        ("t,0,1\nt,one,2", ["g"], "line 2 has the partition 'one', which is not a number from 0"),
        ("t,0,-1", ["g"], "line 1 has the offset '-1', which is not a number from 0"),
        ("t,2147483648,1", ["g"], "line 1 has the partition '2147483648'"),
        ("t,0,9223372036854775808", ["g"], "line 1 has the offset '9223372036854775808'"),
        ("t,²,1", ["g"], "line 1 has the partition '²'"),
        ("t,0", ["g"], "line 1 has 2 instead of 3 or 4 fields"),
        ("topic,partition,offset", ["g"], "line 1 has the partition 'partition'"),
        ("t,0,1\n\nt,0,2", ["g"], "line 3 names t-0 of group 'g' a second time"),
        ("h,t,0,1", ["g"], "line 1 is for group 'h', which the command line does not name"),
        ("t,0,1", ["g", "h"], "line 1 names no group"),
        ("t,0,1", None, "line 1 names no group"),
        ("", ["g"], "has no lines"),
        ("x\n" * 7, ["g"], "line 5 has 1 instead of 3 or 4 fields; and 2 more lines; each line is"),
    ],
)
def test_bad_lines_of_a_plan_are_named_in_one_sentence(text: str, groups: Sequence[str] | None, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan(text, groups)
    assert str(refused.value).startswith("plan.csv")
    assert said in str(refused.value)
    assert str(refused.value).endswith("; each line is TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET")
    assert "\n" not in str(refused.value)


def test_a_plan_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        read_plan(io.BytesIO(b"t,0,\xff"), ["g"])


# ---- new offsets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "committed", "expected"),
    [
        (Goal("to_earliest", True), None, (10, "")),
        (Goal("to_latest", True), 15, (20, "")),
        (Goal("to_current", True), 15, (15, "")),
        (Goal("to_current", True), None, (20, "")),
        (Goal("to_datetime", 1), None, (12, "")),
        (Goal("by_duration", 1), 15, (12, "")),
        (Goal("to_offset", 13), None, (13, "")),
        (Goal("to_offset", 20), None, (20, "")),
        (Goal("to_offset", 0), None, (10, "starts at 10, which is used instead of 0")),
        (Goal("to_offset", 99), None, (20, "ends at 20, which is used instead of 99")),
        (Goal("shift_by", -3), 15, (12, "")),
        (Goal("shift_by", -30), 15, (10, "starts at 10, which is used instead of -15")),
        (Goal("shift_by", 6), 15, (20, "ends at 20, which is used instead of 21")),
    ],
)
def test_a_reset_stays_between_the_first_and_the_end_offset(
    goal: Goal, committed: int | None, expected: tuple[int, str]
) -> None:
    assert new_offset(goal, committed, PartitionOffsets(first=10, end=20, at_time=12)) == expected


def test_a_time_after_the_last_record_is_the_end_with_a_remark() -> None:
    found = new_offset(Goal("to_datetime", 1), 15, PartitionOffsets(first=10, end=20))
    assert found == (20, "has no record since that time, so its end is used")


def test_only_a_committed_offset_is_shifted() -> None:
    with pytest.raises(ValueError, match="has no committed offset that could be shifted"):
        new_offset(Goal("shift_by", 1), None, PartitionOffsets(first=0, end=20))


# ---- execution ------------------------------------------------------------------------------------------------------


def test_groups_that_were_reset_are_shown_although_another_coordinator_cannot_be_reached() -> None:
    failures = {"busy": KafkaError(ErrorCode.unknown_member_id), "away": UnavailableError("no broker answers")}
    tried = []

    class Client:
        async def alter_group_offsets(self, group_id: str, _: Any) -> None:
            tried.append(group_id)
            if group_id in failures:
                raise failures[group_id]

    client: Any = Client()
    errors: dict[str, OdradekError] = {}
    resets = [_Reset(group_id, {}, {}) for group_id in ("first", "busy", "second", "away", "third")]
    done = asyncio.run(_execute(client, resets, errors))
    assert [each.group_id for each in done] == ["first", "second"]
    assert (list(errors), tried) == (["busy", "away", "third"], ["first", "busy", "second", "away"])
    assert str(errors["away"]) == "group 'away': no broker answers"
    assert str(errors["third"]) == "group 'third' was not tried after this error"
