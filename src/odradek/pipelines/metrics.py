"""Metrics of pipelines for Prometheus, from the statuses that `run_pipelines` reports; a thread serves `/metrics`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from odradek.model import PreconditionError, address_text
from odradek.pipelines.status import State, Status

_METRICS: Final = {
    "records_in": "Records read, since this process began, as all counters",
    "records_out": "Rows written to the sink",
    "records_late": "Records dropped because they were later than the watermark allows",
    "bad_rows": "Records whose values do not fit their stream's fields",
    "tombstones": "Records without a value, of streams whose values have fields",
    "batches": "Batches completed",
    "restarts": "Restarts after a failure",
    "lag": "Offsets from the end of the last batch to the ends of the logs",
    "batch_seconds": "Duration of the last batch that had records",
    "batch_ended_at": "Time at which the last batch ended, in seconds since the epoch",
}
"""The fields of `Figures` and `Status` that are shown."""
_NAMES: Final = {"batch_seconds": "last_batch_duration_seconds", "batch_ended_at": "last_batch_timestamp_seconds"}
_GAUGES: Final = frozenset({"lag", *_NAMES})


class StatusCollector:
    """A collector of prometheus_client over `statuses`, which the caller replaces; `collect` runs in any thread."""

    def __init__(self, statuses: Sequence[Status]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        statuses = tuple(self._statuses)
        for field, help_ in _METRICS.items():
            kind = GaugeMetricFamily if field in _GAUGES else CounterMetricFamily
            family = kind(f"odradek_pipeline_{_NAMES.get(field, field)}", f"{help_}.", None, ["pipeline"])
            for status in statuses:
                value = status.restarts if field == "restarts" else getattr(status.figures, field)
                if value is not None:
                    family.add_metric([status.name], value)
            yield family
        state = GaugeMetricFamily("odradek_pipeline_state", "1 for the pipeline's state.", None, ["pipeline", "state"])
        for status in statuses:
            for each in (State.RUNNING, State.RESTARTING, State.DONE, State.STOPPED, State.FAILED):
                state.add_metric([status.name, str(each)], int(status.state == each))
        yield state


@contextmanager
def served_metrics(address: tuple[str, int], statuses: Sequence[Status]) -> Iterator[tuple[str, int]]:
    """Serve metrics of the latest `statuses` and of this process at `/metrics`, and yield the address and port.

    Raise `PreconditionError` if the address cannot be used.
    """
    from prometheus_client import REGISTRY, start_http_server

    host, port = address
    try:
        server, thread = start_http_server(port, host or "0.0.0.0")
    except OSError as error:
        raise PreconditionError(f"cannot serve metrics at {address_text(host, port)}: {error.strerror}") from error
    collector: Any = StatusCollector(statuses)
    REGISTRY.register(collector)
    try:
        yield host, server.server_port
    finally:
        REGISTRY.unregister(collector)
        server.shutdown()
        server.server_close()
        thread.join()
