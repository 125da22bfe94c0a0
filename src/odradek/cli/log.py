"""`odradek log`: print and verify the files of a partition or a broker.

Both subcommands only read, take no lock, and may run beside the broker. `dump` prints the format of Kafka's
`kafka-dump-log.sh`; with `--json`, field names are in snake_case.
"""

import errno
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import click
from msgspec.structs import asdict

from odradek.broker.log.inspection.file_contents import (
    Batch,
    Damage,
    LoggedRecord,
    Producer,
    Property,
    Row,
    inspect,
    is_known_file,
    is_partition_directory,
    known_files,
    partition_directories,
)
from odradek.broker.log.inspection.findings import Finding, directory_state
from odradek.broker.log.inspection.internal_records import (
    TYPES_BY_TOPIC,
    DecodedRecord,
    decode_internal_record,
    record_types_of,
)
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.names import LOG, parent_of, parse_folder
from odradek.cli.common import json_line, json_option, progress, say
from odradek.model import ConfigurationError
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.model.texts import one_line
from odradek.protocol.internal_records.record_types import RecordTypes
from odradek.runtime import Disk, SystemDisk


class _DamagedError(click.exceptions.Exit):
    """Exit code 1 without a message, because the damaged files were reported on stdout."""

    def __init__(self) -> None:
        super().__init__(1)


@click.group(name="log")
def command() -> None:
    """Print and verify the files of a partition or a broker, running or not. Nothing is changed or locked."""


# ---- dump -----------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="FILE|DIR...")
@click.option(
    "--records", "--print-data-log", "records", is_flag=True, help="Also print the records, with key and value."
)
@click.option(
    "--offsets-decoder",
    "decoder",
    flag_value=OFFSETS_TOPIC,
    help=f"Also print the records, decoded as those of {OFFSETS_TOPIC}, whatever the directory's name is.",
)
@click.option(
    "--transaction-log-decoder", "decoder", flag_value=TRANSACTIONS_TOPIC, help=f"Likewise of {TRANSACTIONS_TOPIC}."
)
@json_option
def dump(*, paths: Sequence[str], records: bool, decoder: str | None, as_json: bool) -> None:
    """Print the contents of FILE, or of all files in DIR: batches, indexes, producers, epochs, checkpoints.

    DIR is a partition's directory or a whole data directory. Records of __consumer_offsets and __transaction_state are
    decoded. Exits with 1 if a file can't be read to its end.
    """
    disk = SystemDisk()
    is_damaged = False
    decoded_as = None if decoder is None else TYPES_BY_TOPIC[decoder]
    for path in paths:
        files = list(_files(disk, path))
        if disk.is_directory(path) and not is_partition_directory(disk, path):
            say(_state_json(disk, path) if as_json else _state_text(disk, path))
        for file in files:
            try:
                types = decoded_as or record_types_of(disk.absolute(file))
                wanted = records or decoded_as is not None
                is_damaged |= _dump_file(disk, file, records=wanted, types=types, as_json=as_json)
            except FileNotFoundError:
                if file == path:
                    raise
                say(f"odradek: {file} was deleted while it was read", is_remark=True)
            except OSError as error:
                if error.filename is None and error.errno != errno.EIO:
                    raise  # not an error of the file: the output is closed, or its disk is full
                say(f"odradek: {file} cannot be read: {error.strerror or error}", is_remark=True)
                is_damaged = True
    if is_damaged:
        raise _DamagedError


def _dump_file(disk: Disk, file: str, *, records: bool, types: RecordTypes | None, as_json: bool) -> bool:
    """Print one file, and return whether it is damaged."""
    write = sys.stdout.write
    if not as_json:
        write(f"Dumping {file}\n")
    is_damaged = False
    for row in inspect(disk, file, records=records):
        write(f"{_row_json(file, row, types) if as_json else one_line(_text(row, types))}\n")
        if isinstance(row, Damage):
            is_damaged |= not (row.is_cut and _is_in_use(disk, file))
        elif isinstance(row, Batch):
            is_damaged |= not row.is_valid
    return is_damaged


def _is_in_use(disk: Disk, file: str) -> bool:
    """Return whether a running broker may be writing the file, because it holds the data directory's lock."""
    return directory_state(disk, parent_of(parent_of(disk.absolute(file)))).holder is not None


def _files(disk: Disk, path: str) -> Iterator[str]:
    """Yield the files to dump. Raises `ConfigurationError` for a path that holds none."""
    if not disk.is_directory(path):
        if disk.exists(path) and not is_known_file(path):
            raise ConfigurationError(f"{path} has not the name of a log's file, such as 00000000000000000000.log")
        yield path
        return
    folder = path.rstrip("/") or "/"
    partitions = [] if is_partition_directory(disk, folder) else partition_directories(disk, folder)
    files = known_files(disk, folder)
    if not files and not partitions and parse_folder(disk.absolute(folder).rpartition("/")[2]) is None:
        raise ConfigurationError(f"{path} is neither a partition's directory nor a data directory; name one of them")
    yield from files
    for partition in partitions:
        try:
            yield from known_files(disk, partition)
        except OSError:
            yield partition  # opening it reports the reason


def _state_text(disk: Disk, directory: str) -> str:
    """Return a sentence: which process uses a data directory, or whether it was closed cleanly."""
    state = directory_state(disk, directory.rstrip("/") or "/")
    if state.holder is not None:
        return f"{directory} is in use by {state.holder}"
    return f"{directory} was {'closed' if state.is_clean else 'not closed: the next start recovers it'}"


def _state_json(disk: Disk, directory: str) -> str:
    state = directory_state(disk, directory.rstrip("/") or "/")
    return json_line(
        {"file": directory, "type": "directory", "held_by": state.holder, "clean_shutdown": state.is_clean}
    )


def _row_json(file: str, row: Row, types: RecordTypes | None) -> str:
    fields: dict[str, object] = asdict(row)
    if isinstance(row, LoggedRecord):
        fields["headers"] = [{"key": key, "value": value} for key, value in row.headers]
        if types is not None and row.control_type is None:
            decoded = decode_internal_record(types, row.key, row.value)
            fields |= asdict(decoded)
    return json_line({"file": file, "type": _type_of(row), **fields})


def _type_of(row: Row) -> str:
    if isinstance(row, LoggedRecord):
        return "record"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(row).__name__).lower()


def _text(row: Row, types: RecordTypes | None) -> str:
    if isinstance(row, Damage):
        return f"damaged at byte {row.byte}: the file {row.reason}"
    if isinstance(row, LoggedRecord):
        return _record_text(row, types)
    if isinstance(row, Batch):
        return _batch_text(row)
    if isinstance(row, Producer):
        return _producer_text(row)
    if isinstance(row, Property):
        return f"{row.name}: {_printable(row.value.encode())}"
    return " ".join(f"{_camel_case(name)}: {value}" for name, value in asdict(row).items())


def _batch_text(batch: Batch) -> str:
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch} "
        f"isTransactional: {_java(batch.is_transactional)} isControl: {_java(batch.is_control)} "
        f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)} position: {batch.position} "
        f"{batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {batch.compress_codec} crc: {batch.crc} isvalid: {_java(batch.is_valid)}"
    )


def _producer_text(row: Producer) -> str:
    text = (
        f"producerId: {row.producer_id} producerEpoch: {row.producer_epoch} coordinatorEpoch: {row.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(row.current_txn_first_offset)} lastTimestamp: {row.last_timestamp}"
    )
    if row.last_offset < 0:
        return text
    return (
        f"{text} firstSequence: {row.first_sequence} lastSequence: {row.last_sequence} lastOffset: {row.last_offset} "
        f"offsetDelta: {row.offset_delta} timestamp: {row.last_timestamp}"
    )


def _record_text(row: LoggedRecord, types: RecordTypes | None) -> str:
    keys = ",".join(_printable(key.encode()) for key, _ in row.headers)
    text = (
        f"| offset: {row.offset} {row.timestamp_type}: {row.timestamp} keySize: {row.key_size} "
        f"valueSize: {row.value_size} sequence: {row.sequence} headerKeys: [{keys}]"
    )
    if row.control_type is not None:
        return f"{text} endTxnMarker: {row.control_type} coordinatorEpoch: {row.coordinator_epoch}"
    if types is not None:
        return f"{text} {_decoded_text(decode_internal_record(types, row.key, row.value))}"
    if row.key is not None:
        text += f" key: {_printable(row.key)}"
    return text if row.value is None else f"{text} payload: {_printable(row.value)}"


def _decoded_text(record: DecodedRecord) -> str:
    """Return key and value as Kafka's `--offsets-decoder` prints them, with decoding errors in angle brackets."""
    error = f"<{_printable((record.decode_error or '').encode())}>"
    if record.decoded_key is None:
        return f"key: {error}"
    key = _kafkas_json({"type": str(record.record_type), "data": record.decoded_key})
    if record.decode_error is not None:
        return f"key: {key} payload: {error}"
    if record.decoded_value is None:
        return f"key: {key} payload: <DELETE>"
    value = _kafkas_json({"version": str(record.value_version), "data": record.decoded_value})
    return f"key: {key} payload: {value}"


def _kafkas_json(value: object) -> str:
    """Return JSON with Kafka's names."""
    return json_line(_camel_cased(value))


def _camel_cased(value: object) -> object:
    if isinstance(value, Mapping):
        return {_camel_case(name): _camel_cased(each) for name, each in value.items()}
    return [_camel_cased(each) for each in value] if isinstance(value, list) else value


def _camel_case(name: str) -> str:
    """Return `start_offset` as `startOffset`."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _java(value: bool) -> str:  # noqa: FBT001 - it is what the function is about
    return "true" if value else "false"


def _printable(data: bytes) -> str:
    """Return UTF-8 text on one line, or the escaped bytes."""
    return one_line(data.decode("utf-8", "backslashreplace"))


# ---- verify ---------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False), metavar="DIR...")
@click.option("--records", is_flag=True, help="Also decompress the batches and read every record.")
@json_option
def verify(*, directories: Sequence[str], records: bool, as_json: bool) -> None:
    """Check every CRC, index entry, offset and epoch in DIR, a partition's directory or a whole data directory.

    Each damaged file is reported with the position of its first damaged batch, entry or line, and the exit code is 1.
    An incomplete write of a running broker is reported as such, and is no damage.
    """
    disk = SystemDisk()
    total = sum(_log_bytes(disk, directory) for directory in directories)
    with progress("checking", total, unit="bytes", wanted=not as_json) as advance:
        verification = Verification(disk, records=records, advance=advance)
        for directory in directories:
            for finding in _verify(disk, verification, directory):
                say(json_line({"type": "finding", **_fields(finding)}) if as_json else _sentence(finding))
    totals = verification.totals
    if as_json:
        say(json_line({"type": "totals", **asdict(totals)}))
    else:
        verdict = "nothing is damaged"
        if totals.damaged_files:
            verdict = f"{totals.damaged_files} file{'s are' if totals.damaged_files > 1 else ' is'} damaged"
        say(
            f"{totals.logs} logs, {totals.segments} segments, {totals.batches} batches, {totals.records} records, "
            f"{totals.bytes} bytes: {verdict}"
        )
    if totals.damaged_files:
        raise _DamagedError


def _verify(disk: Disk, verification: Verification, directory: str) -> Iterator[Finding]:
    folder = directory.rstrip("/") or "/"
    if is_partition_directory(disk, folder):
        return verification.partition_directory(folder)
    if not partition_directories(disk, folder) and not known_files(disk, folder):
        raise ConfigurationError(
            f"{directory} is neither a partition's directory nor a data directory; name one of them"
        )
    return verification.data_directory(folder)


def _log_bytes(disk: Disk, directory: str) -> int:
    folders = [directory] if is_partition_directory(disk, directory) else partition_directories(disk, directory)
    total = 0
    for folder in folders:
        with suppress(OSError):  # the check itself reports unreadable files
            total += sum(disk.size(file) for file in known_files(disk, folder) if file.endswith(LOG))
    return total


def _fields(finding: Finding) -> Mapping[str, object]:
    return asdict(finding)


def _sentence(finding: Finding) -> str:
    place = finding.path if finding.byte is None else f"{finding.path}: byte {finding.byte}"
    return f"{place}: {'' if finding.is_damage else 'note: '}{finding.reason}"
