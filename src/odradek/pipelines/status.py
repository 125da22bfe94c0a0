"""The state of a pipeline, and the file in its checkpoint that `odradek pipeline status` reads.

    CHECKPOINT/odradek_status      JSON: state, error, restarts, seconds, the figures; replaced at each change
    CHECKPOINT/odradek_error       Spark's whole text of the last failure

A killed process leaves the state `running`; it is then `killed` for readers, because no process holds the lock.
"""

from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odradek.pipelines.config.pipelines import AnyPipeline, is_url
from odradek.pipelines.files.sink_files import LOCK
from odradek.pipelines.progress import Figures
from odradek.runtime import Disk

_FILE: Final = "odradek_status"


class State(StrEnum):
    """The state of a pipeline."""

    RUNNING = "running"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    KILLED = "killed"
    """The pipeline's process ended unexpectedly."""
    NEVER_STARTED = "never started"
    UNKNOWN = "unknown"
    """The checkpoint is a URL, or another version wrote the status."""


class Status(Struct, frozen=True, kw_only=True):
    """The state of a pipeline. `seconds` counts from its start to its end or now, restarts included."""

    name: str
    kind: str
    state: State
    figures: Figures = Figures()
    seconds: float = 0.0
    restarts: int = 0
    error: str | None = None
    """Why the pipeline failed or restarts, in one sentence."""
    spark_page: str | None = None
    """The address of Spark's own page; None unless `spark.ui.enabled` is set."""

    @property
    def active(self) -> bool:
        """Whether the pipeline runs or will restart."""
        return self.state in {State.RUNNING, State.RESTARTING}


def details_file(pipeline: AnyPipeline) -> str:
    """Return the path of the file for Spark's text of the last failure."""
    return f"{pipeline.checkpoint}/odradek_error"


def write_status(disk: Disk, pipeline: AnyPipeline, status: Status) -> None:
    """Write the status into the checkpoint. Raise `OSError`."""
    disk.replace_file(f"{pipeline.checkpoint}/{_FILE}", msgspec.json.encode(status))


def read_status(disk: Disk, pipeline: AnyPipeline) -> Status:
    """Return the written status, corrected by whether a process holds the checkpoint's lock now. Raise `OSError`."""
    unknown = Status(name=pipeline.name, kind=pipeline.kind, state=State.UNKNOWN)
    if is_url(pipeline.checkpoint):
        return unknown
    path = f"{pipeline.checkpoint}/{_FILE}"
    held = disk.lock_holder(f"{pipeline.checkpoint}/{LOCK}") is not None
    if not disk.exists(path):
        return replace(unknown, state=State.RUNNING if held else State.NEVER_STARTED)
    try:
        status = msgspec.json.decode(disk.read_file(path), type=Status)
    except msgspec.MsgspecError:
        # Written by another version.
        return replace(unknown, state=State.RUNNING if held else State.UNKNOWN)
    if held and not status.active:
        return replace(status, state=State.RUNNING)
    return replace(status, state=State.KILLED) if status.active and not held else status
