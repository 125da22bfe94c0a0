"""The output of Kafka's DumpLogSegments and of `odradek log dump` for the same files, in one form.

A line of Kafka's is `name: value name: value …`; a record's begins with `| ` and ends with its key and payload, which
may hold anything but a line's end. The JSON fields of `odradek log dump` have the same names in snake_case.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from conformance.peers.kafka_tools import tool
from odradek.cli import main

SUFFIXES: Final = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")

_DUMPING: Final = "Dumping "
_ABOUT_THE_FILE: Final = re.compile(
    r"Log starting offset: \d+|.* is empty\."
    # Gaps are what compaction leaves; that there are no others, the records say, which are compared.
    r"|Non-consecutive offsets in .*|  -?\d+ is followed by \d+"
    # An entry at a batch that compaction left without a record: its time is that of its header, in Kafka's logs too.
    r"|Found timestamp mismatch in :.*|  Index timestamp: \d+, log timestamp: -1"
)
_RECORD: Final = re.compile(
    r"\| (?P<fields>.*?) headerKeys: \[(?P<headers>.*?)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<epoch>-?\d+))?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?"
)
_OPTIONAL: Final = re.compile(r"OptionalLong(?:\.empty|\[(-?\d+)\])")
_RENAMED: Final = {"compresscodec": "compress_codec", "isvalid": "is_valid"}
_OF_A_BATCH: Final = ("first_sequence", "last_sequence", "last_offset", "offset_delta")

Row = Mapping[str, Any]


def segment_files(folders: Iterable[Path]) -> list[Path]:
    """All files of these partitions that DumpLogSegments reads, but for transaction indexes without an entry."""
    found = [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    return [path for path in found if path.stat().st_size or path.suffix == ".log"]


def kafkas_lines(files: Sequence[Path], *flags: str) -> dict[Path, list[str]]:
    """The lines of DumpLogSegments by file, all read by one JVM; what it complains of comes with the last file's."""
    arguments = ("--files", ",".join(map(str, files)), *flags)
    return _by_file(tool("org.apache.kafka.tools.DumpLogSegments", *arguments))


def our_lines(files: Sequence[Path], *flags: str) -> dict[Path, list[str]]:
    """The lines of `odradek log dump` by file."""
    return _by_file(_our_output([*flags, *map(str, files)]))


def our_rows(files: Sequence[Path], *flags: str) -> dict[Path, list[Row]]:
    """Return the rows that `odradek log dump --json` prints for each file."""
    rows: dict[Path, list[Row]] = {file: [] for file in files}
    for line in _our_output(["--json", *flags, *map(str, files)]).splitlines():
        row = json.loads(line)
        rows[Path(row.pop("file"))].append(row)
    return rows


def _our_output(arguments: list[str]) -> str:
    result = CliRunner().invoke(main, ["log", "dump", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _by_file(output: str) -> dict[Path, list[str]]:
    lines: dict[Path, list[str]] = {}
    for line in output.split("\n"):
        if line.startswith(_DUMPING):
            current = lines.setdefault(Path(line.removeprefix(_DUMPING)), [])
        elif line and not _ABOUT_THE_FILE.fullmatch(line):
            # Kafka's line of a producer without a batch ends with a blank, a record's may end with an empty value.
            current.append(line if line.startswith("| ") else line.rstrip(" "))
    return lines


# ---- Kafka's lines as our rows --------------------------------------------------------------------------------------


def as_row(file: Path, line: str) -> Row:
    """A line of DumpLogSegments as `odradek log dump --json` would have it, as far as the line says it."""
    if line.startswith("| "):
        return _as_record(line)
    fields = _fields(line)
    match file.suffix:
        case ".log":
            timestamp_type = "LogAppendTime" if "log_append_time" in fields else "CreateTime"
            fields["max_timestamp"] = fields.pop(
                "log_append_time" if timestamp_type == "LogAppendTime" else "create_time"
            )
            return {"type": "batch", "timestamp_type": timestamp_type, **fields}
        case ".index":
            return {"type": "offset_index_entry", **fields}
        case ".timeindex":
            return {"type": "time_index_entry", **fields}
        case ".txnindex":
            return {"type": "transaction_index_entry", **fields}
    fields.pop("timestamp", None)
    return {"type": "producer", **dict.fromkeys(_OF_A_BATCH, -1), **fields}


def as_shown(row: Row) -> Row:
    """A row of ours without what DumpLogSegments does not print: the values of headers."""
    if row["type"] != "record":
        return row
    return {**row, "headers": [header["key"] for header in row["headers"]]}


def _as_record(line: str) -> Row:
    match = _RECORD.fullmatch(line)
    assert match is not None, line
    fields = _fields(match["fields"])
    timestamp_type = "LogAppendTime" if "log_append_time" in fields else "CreateTime"
    fields["timestamp"] = fields.pop("log_append_time" if timestamp_type == "LogAppendTime" else "create_time")
    is_control = match["marker"] is not None
    return {
        "type": "record",
        "timestamp_type": timestamp_type,
        **fields,
        "headers": match["headers"].split(",") if match["headers"] else [],
        "control_type": match["marker"],
        "coordinator_epoch": int(match["epoch"]) if is_control else None,
        **({} if is_control else {"key": _base64(match["key"]), "value": _base64(match["payload"])}),
    }


def _fields(line: str) -> dict[str, Any]:
    words = line.split(" ")
    assert len(words) % 2 == 0, line
    named = zip(words[::2], words[1::2], strict=True)
    return {_snake(name.removesuffix(":")): _value(value) for name, value in named}


def _snake(name: str) -> str:
    spelled = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _RENAMED.get(spelled, spelled)


def _value(text: str) -> Any:
    optional = _OPTIONAL.fullmatch(text)
    if optional:
        return None if optional[1] is None else int(optional[1])
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _base64(text: str | None) -> str | None:
    return None if text is None else base64.b64encode(text.encode()).decode()
