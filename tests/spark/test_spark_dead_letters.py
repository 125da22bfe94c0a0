"""Dead letters without Spark around them: which rows stay, and which files there are."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from odradek.spark.writing import dead_letters
from odradek.spark.writing.dead_letters import MOST_ROWS, LettersDirectory, split_dead_letters

LETTER = pa.struct(
    [
        ("stream", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
    ]
)


def letter(offset: int, partition: int = 0, value: bytes = b"x") -> dict[str, Any]:
    return {"stream": "s", "topic": "t", "partition": partition, "offset": offset, "value": value}


def split(directory: Path, *arrays: list[dict[str, Any] | None]) -> list[list[bool]]:
    given = (pa.array(array, LETTER) for array in arrays)
    return [kept.to_pylist() for kept in split_dead_letters(given, LettersDirectory(path=str(directory)))]


def offsets(directory: Path) -> list[tuple[int, int]]:
    table = ds.dataset(directory, schema=pa.schema(LETTER.fields), format="parquet").to_table()
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_without_a_dead_letter_there_is_no_directory(tmp_path: Path) -> None:
    assert split(tmp_path / "dead", [None, None], []) == [[True, True], []]
    assert not (tmp_path / "dead").exists()


def test_the_dead_letters_of_a_task_are_in_one_file(tmp_path: Path) -> None:
    assert split(tmp_path, [None, letter(1)], [letter(2), None]) == [[True, False], [False, True]]
    assert names(tmp_path) == ["dead-s-t-0-00000000000000000001.parquet"]
    assert offsets(tmp_path) == [(0, 1), (0, 2)]


def test_each_partition_has_its_file(tmp_path: Path) -> None:
    split(tmp_path, [letter(7, partition=1), letter(3), letter(8, partition=1)])
    assert names(tmp_path) == ["dead-s-t-0-00000000000000000003.parquet", "dead-s-t-1-00000000000000000007.parquet"]
    assert offsets(tmp_path) == [(0, 3), (1, 7), (1, 8)]


def test_a_task_that_runs_again_replaces_its_files(tmp_path: Path) -> None:
    given = [letter(offset) for offset in range(2 * MOST_ROWS + 5)]
    arrays = [given[start : start + 4_000] for start in range(0, len(given), 4_000)]
    split(tmp_path, *arrays)
    before = names(tmp_path)
    assert len(before) == 2
    split(tmp_path, *arrays)
    assert names(tmp_path) == before
    assert offsets(tmp_path) == [(0, offset) for offset in range(len(given))]


def test_large_values_are_written_before_the_byte_limit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dead_letters, "MOST_BYTES", 1_000)
    split(tmp_path, [letter(0, value=b"x" * 2_000)], [letter(1, value=b"x" * 2_000)])
    assert len(names(tmp_path)) == 2


def test_readers_skip_the_file_of_a_task_that_died(tmp_path: Path) -> None:
    unfinished = tmp_path / ".dead-s-t-0-00000000000000000005.parquet.0"
    unfinished.write_bytes(b"")
    assert offsets(tmp_path) == []
    split(tmp_path, [letter(5)])
    assert names(tmp_path) == ["dead-s-t-0-00000000000000000005.parquet"]
