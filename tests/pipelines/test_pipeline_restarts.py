"""Restarts, neighbours and states of pipelines, with attempts that tests make up (M11)."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.model import OdradekError
from odradek.pipelines.attempts import AttemptFailedError
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import AnyPipeline
from odradek.pipelines.progress import Figures
from odradek.pipelines.runner import PipelineRun
from odradek.pipelines.status import State, read_status
from odradek.runtime import Runtime, system_runtime


@dataclass
class ManualClock:
    """A clock that a test moves."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def busy_s(self) -> float:
        return 0.0


class Failure(AttemptFailedError):
    def __init__(self, text: str = "the broker went away", *, is_final: bool = False) -> None:
        super().__init__(OdradekError(text), details=f"Traceback of {text}", is_final=is_final)


@dataclass
class Attempts:
    """Each attempt does what the next list says: figures of polls, or an error."""

    scripts: list[list[Figures | Failure]] = field(default_factory=list)
    started: int = 0

    def __call__(self, spark: Any, pipeline: AnyPipeline, runtime: Runtime) -> "Attempts":
        self.started += 1
        if isinstance(self.scripts[0][0], Failure) and len(self.scripts[0]) == 1:
            raise self.scripts.pop(0)[0]
        return self

    def poll(self) -> tuple[Figures, bool]:
        step = self.scripts[0].pop(0)
        if isinstance(step, Failure):
            self.scripts.pop(0)
            raise step
        return step, bool(self.scripts[0])

    def wait(self, seconds: float) -> None: ...

    def stop(self) -> None:
        self.scripts[0][1:] = []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> Runtime:
    return replace(system_runtime(), clock=clock)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., AnyPipeline]:
    def make(name: str = "job", **restart: Any) -> AnyPipeline:
        values = {
            "kind": "mirror",
            "checkpoint": f"{name}.state",
            "source": {"bootstrap_servers": "a:1", "topics": ["t"]},
            "target": {"bootstrap_servers": "b:1"},
            "restart": restart,
        }
        return parse_pipeline(values, directory=tmp_path, default_name=name)

    return make


def figures(batches: int) -> Figures:
    return Figures(batches=batches, records_in=10 * batches)


def test_a_pipeline_that_fails_starts_again_after_a_pause_that_doubles(clock: ManualClock, runtime: Any, job: Any):
    attempts = Attempts([[Failure()], [Failure()], [figures(1), figures(2)]])
    run = PipelineRun(None, job(backoff="2 seconds"), runtime, attempts)
    assert (run.poll().state, attempts.started) == (State.RESTARTING, 1)
    clock.now = 1.9
    assert (run.poll().state, attempts.started) == (State.RESTARTING, 1)
    clock.now = 2.0
    assert (run.poll().state, attempts.started) == (State.RESTARTING, 2)
    clock.now = 5.9
    assert (run.poll().state, attempts.started) == (State.RESTARTING, 2)
    clock.now = 6.0
    assert (run.poll().state, attempts.started) == (State.RUNNING, 3)
    assert run.poll().error is None
    status = run.poll()
    assert (status.state, status.restarts, status.figures.records_in) == (State.DONE, 2, 20)


def test_the_default_policy_outlasts_an_outage_of_ten_minutes(clock: ManualClock, runtime: Any, job: Any):
    run = PipelineRun(None, job(), runtime, Attempts([[Failure()] for _ in range(1000)]))
    while run.poll().active:
        clock.now += 1
    assert 600 < clock.now < 1800


def test_without_a_limit_a_pipeline_restarts_for_days(clock: ManualClock, runtime: Any, job: Any):
    run = PipelineRun(None, job(limit=-1), runtime, Attempts([[Failure()] for _ in range(100)]))
    for _ in range(99):
        clock.now += 1_800
        assert run.poll().state is State.RESTARTING
    assert run.poll().restarts == 100


def test_a_query_that_fails_after_a_signal_has_been_stopped(runtime: Any, job: Any):
    class Killed(Attempts):
        def stop(self) -> None:
            raise Failure("the JVM has ended")

    signals: list[int] = []

    def check() -> None:
        if signals:
            raise KeyboardInterrupt

    for attempts in (Attempts([[figures(1), Failure(is_final=True)]]), Killed([[figures(1), figures(2), figures(3)]])):
        run = PipelineRun(None, job(), runtime, attempts, check_interrupts=check)
        run.poll()
        signals.append(15)
        with suppress(KeyboardInterrupt):
            run.poll()
        run.stop()
        assert (run.poll().state, run.poll().error, run.failure) == (State.STOPPED, None, None)
        signals.clear()


def test_a_pipeline_that_fails_too_often_in_a_row_has_failed(clock: ManualClock, runtime: Any, job: Any):
    attempts = Attempts([[Failure()], [figures(1), Failure()], [Failure()], [Failure("no more")]])
    run = PipelineRun(None, job(limit=2), runtime, attempts)
    for _ in range(20):
        clock.now += 1000
        status = run.poll()
    assert (status.state, status.error, status.restarts) == (State.FAILED, "no more", 3)
    assert (attempts.started, status.figures.batches) == (4, 1)
    assert run.details == "Traceback of no more"


def test_an_error_that_another_attempt_meets_again_is_not_tried_again(runtime: Any, job: Any):
    attempts = Attempts([[Failure("no column x", is_final=True)]])
    run = PipelineRun(None, job(), runtime, attempts)
    assert (run.poll().state, run.poll().error, attempts.started) == (State.FAILED, "no column x", 1)


def test_figures_of_earlier_attempts_are_added_up(clock: ManualClock, runtime: Any, job: Any):
    attempts = Attempts([[figures(3), Failure()], [figures(2)]])
    run = PipelineRun(None, job(), runtime, attempts)
    run.poll()
    assert run.poll().state is State.RESTARTING
    clock.now += 60
    run.poll()
    assert run.poll().figures.batches == 5


def test_batches_that_end_between_the_last_poll_and_the_failure_count(clock: ManualClock, runtime: Any, job: Any):
    unseen = Failure()
    unseen.figures = figures(2)
    run = PipelineRun(None, job(limit=1), runtime, Attempts([[Failure()], [figures(0), unseen], [figures(3)]]))
    for _ in range(3):
        clock.now += 60
        status = run.poll()
    assert (status.state, status.restarts, status.figures.batches) == (State.RESTARTING, 2, 2)
    clock.now += 60
    run.poll()
    assert run.poll().figures.batches == 5


def test_a_stopped_pipeline_is_not_done(runtime: Any, job: Any):
    run = PipelineRun(None, job(), runtime, Attempts([[figures(1), figures(1), figures(1)]]))
    run.poll()
    run.stop()
    assert run.poll().state is State.STOPPED


def test_another_process_sees_the_state_and_that_the_process_was_killed(
    clock: ManualClock, runtime: Any, job: Any, tmp_path: Path
):
    pipeline = job()
    assert read_status(runtime.disk, pipeline).state is State.NEVER_STARTED
    run = PipelineRun(None, pipeline, runtime, Attempts([[figures(1), figures(2), Failure(is_final=True)]]))
    clock.now = 5
    run.poll()
    seen = read_status(runtime.disk, pipeline)
    assert (seen.state, seen.figures.records_in, seen.seconds) == (State.RUNNING, 10, 5)
    at_kill = (tmp_path / "job.state" / "odradek_status").read_text()
    run.poll()
    run.poll()
    seen = read_status(runtime.disk, pipeline)
    assert (seen.state, seen.error) == (State.FAILED, "the broker went away")
    # As a killed process leaves it: active in the file, and the lock free.
    (tmp_path / "job.state" / "odradek_status").write_text(at_kill)
    assert read_status(runtime.disk, pipeline).state is State.KILLED
    (tmp_path / "job.state" / "odradek_status").write_text(json.dumps({"version": 9}))
    assert read_status(runtime.disk, pipeline).state is State.UNKNOWN


def test_a_checkpoint_in_use_fails_its_pipeline_only(runtime: Any, job: Any):
    pipeline = job()
    first = PipelineRun(None, pipeline, runtime, Attempts([[figures(1), figures(1)]]))
    second = PipelineRun(None, pipeline, runtime, Attempts([]))
    assert second.poll().state is State.FAILED
    assert "is in use by process" in str(second.poll().error)
    assert first.poll().state is State.RUNNING
    first.stop()


def test_a_pipeline_whose_stop_is_interrupted_does_not_start_again(runtime: Any, job: Any):
    class Interrupted(Attempts):
        def stop(self) -> None:
            raise KeyboardInterrupt

    attempts = Interrupted([[figures(1), figures(1), figures(1)]])
    run = PipelineRun(None, job(), runtime, attempts)
    run.poll()
    with pytest.raises(KeyboardInterrupt):
        run.stop()
    assert (run.poll().state, attempts.started) == (State.STOPPED, 1)
