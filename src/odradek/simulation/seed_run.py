"""One seed: its cluster, its clients, its faults, and what the checks find.

```python
result = run_seed(SeedPlan(seed=7))
assert not result.findings, result.findings
```
The same plan gives the same result, byte for byte. A plan and a result are values that processes exchange as JSON.
"""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec import Struct, field

from odradek.broker.lifecycle import Broker
from odradek.model.probes import collecting, listening, perturbing
from odradek.protocol.api import ApiKey
from odradek.simulation.checks.agreement import agreed
from odradek.simulation.checks.bounds import bounded
from odradek.simulation.checks.coordinator_replies import CoordinatorReplies
from odradek.simulation.checks.folders import tidied
from odradek.simulation.checks.rebuilt_logs import RebuiltLogs
from odradek.simulation.checks.replicas import HighWatermarks
from odradek.simulation.faults.catalogue import FAULTS, names_for
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.promises import CLIENTS, PATIENCE_S
from odradek.simulation.setup import draw_setup
from odradek.simulation.virtual.clock import HOST
from odradek.simulation.virtual.loop import LivelockError
from odradek.simulation.virtual.message_tap import MessageTap, TappedRequest, message_text
from odradek.simulation.workloads import retained
from odradek.simulation.workloads.catalogue import WORKLOADS, draw_workloads
from odradek.simulation.world import World, until

_INTERVAL_S: Final = 0.05
_SHOWN: Final = 60
"""Number of the last messages in a result, and the characters of each."""
_LONGEST: Final = 400
_CALM_S: Final = 10.0
"""Virtual seconds after the faults and the repairs, until requests that were sent before have their responses."""
_TIME_OUTS: Final = (
    "wire: a request has no response in time", "produce: the in-sync replicas do not have the records in time"
)  # fmt: skip
"""The marked branches that a cluster without faults must not reach."""
_PERTURBED_SHARE: Final = 0.25
"""The share of the places marked with `perturb` that a seed perturbs."""
_PERTURBED_TIMES: Final = 0.1
_DAMAGES: Final = frozenset({"damage_files", "flip_bit"})
"""Faults after which brokers keep damaged logs under another name."""


class SeedPlan(Struct, frozen=True, kw_only=True):
    """A run: the seed draws everything that is not given here.

    `workloads` and `faults` are names; a fault that is named twice is drawn more often. `count` deeds take about
    `virtual_s`; `kept` are the numbers of those that are played, and None plays all. `config` overrides broker
    configuration, and fields of `Setup` by name. With `shows_messages`, the result has the last messages.
    """

    seed: int
    workloads: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    count: int = 5
    virtual_s: float = 40.0
    kept: frozenset[int] | None = None
    config: dict[str, str] = {}
    shows_messages: bool = False


class SeedResult(Struct, frozen=True, kw_only=True):
    """The outcome of a plan. `findings` are sentences; none means that every promise was kept.

    `found_by` names the module of the check of each finding, such as `workloads.records`.
    `deeds` are the played faults, such as `3 12.40 kill 1 0`: number, virtual seconds, name and brokers. `error` has
    the traceback of an exception that ended the run. `messages` are the last requests and responses, decoded.
    """

    plan: SeedPlan
    digest: str
    findings: list[str]
    found_by: list[str] = []
    deeds: list[str]
    virtual_s: float
    events: int
    trace: list[str]
    messages: list[str] = []
    error: str = ""
    probes: dict[str, int] = field(default_factory=dict)
    transitions: dict[str, int] = field(default_factory=dict)


class _Play:
    """The state of one run, which can still be read after an exception."""

    def __init__(self, plan: SeedPlan, new_world: Callable[..., World]) -> None:
        names = plan.workloads or draw_workloads(plan.seed)
        # The workload `security` creates the users of the others.
        self._kinds = [WORKLOADS[name] for name in sorted(names, key="security".__ne__)]
        needed = {key: value for kind in self._kinds for key, value in kind.config.items()}
        if len(self._kinds) == 1 and Random(f"{plan.seed}/alone").random() < 0.5:
            needed.update(self._kinds[0].config_alone)
        self._setup = draw_setup(plan.seed, needed | plan.config)
        self._rebuilt_logs, self._replies = RebuiltLogs(), CoordinatorReplies()
        shown = [*ApiKey] if plan.shows_messages else []
        self._tap = MessageTap(shown, self._show_request, self._show_response)
        self.messages = deque[str](maxlen=_SHOWN)
        self.world = new_world(
            plan.seed,
            self._setup.config,
            brokers=self._setup.brokers,
            noticed_at_once=self._setup.noticed_at_once,
            tree_s=self._setup.tree_s,
            tree_lag_s=self._setup.tree_lag_s,
            racks=True,
            before_start=self._watch_broker,
        )
        self.world.simulation.network.cut_share = 0.05
        self._spread_brokers()
        self.schedule = Schedule(
            self.world,
            FAULTS,
            plan.faults or names_for(names, brokers=self._setup.brokers),
            count=plan.count,
            virtual_s=plan.virtual_s,
            kept=plan.kept,
            flushes_by_group=self._setup.flushes_by_group,
        )
        self._perturbed: dict[str, Random | None] = {}
        self.findings: list[str] = []
        self.found_by: list[str] = []
        self.error = ""

    def _spread_brokers(self) -> None:
        """Give one broker a longer way to the others."""
        hosts, distances_s = self.world.hosts, self.world.simulation.network.distances_s
        distant = hosts[self._setup.distant]
        for host in hosts:
            if host != distant and self._setup.distance_s:
                distances_s[host, distant] = distances_s[distant, host] = self._setup.distance_s

    async def _scenario(self, world: World) -> None:
        workloads = [kind(world, self._setup) for kind in self._kinds]
        self.schedule.workloads = workloads
        for workload in workloads:
            await workload.start()
            self.schedule.topics += workload.topics
            self.schedule.clients += workload.clients
        watermarks = HighWatermarks(world, self.schedule.topics)
        async with asyncio.TaskGroup() as watching:
            watcher = watching.create_task(self._watch(watermarks), name="high watermarks")
            await self.schedule.play()
            await agreed(world, within_s=PATIENCE_S)
            await self.schedule.finish()
            await self.schedule.until_whole()
            watcher.cancel()
        with listening(partial(self._note_time_out, world.now_s + _CALM_S)):
            with suppress(TimeoutError):
                await until(lambda: not watermarks.lower(), within_s=PATIENCE_S, each_s=0.2)
            self._found(HighWatermarks, watermarks.findings())
            for workload in workloads:
                self._found(type(workload), await workload.finish())
            await agreed(world, within_s=PATIENCE_S)  # while administrators work, some moment without changes is enough
        self._found(HighWatermarks, await watermarks.starts(but=retained.TOPIC))
        damaged = any(deed.split()[2] in _DAMAGES for deed in self.schedule.done)
        self._found(tidied, await tidied(world, with_strays=not damaged))
        self._found(bounded, await bounded(world))
        self._raise_findings()

    def _watch_broker(self, broker: Broker) -> None:
        self._rebuilt_logs.watch(broker)
        self._replies.watch(broker)
        self._tap.attach(broker)

    def _show_request(self, request: TappedRequest) -> None:
        self._show(f"{request.client_id} → {self.world.hosts[request.broker.broker_id]}", request, request.message)

    def _show_response(self, request: TappedRequest, response: Any) -> bool:
        self._show(f"{self.world.hosts[request.broker.broker_id]} → {request.client_id}", request, response)
        return True

    def _show(self, way: str, request: TappedRequest, message: Any) -> None:
        text = f"{way}: {request.api.name} {message_text(message)}"
        self.messages.append(f"{self.world.now_s:12.6f} s  {text[:_LONGEST]}")

    async def _watch(self, watermarks: HighWatermarks) -> None:
        while True:
            self._raise_findings()
            watermarks.look()
            await asyncio.sleep(_INTERVAL_S)

    def _note_time_out(self, since_s: float, name: str) -> None:
        """Note a finding if the marked branch `name` is a time-out and the cluster had no fault since `since_s`.

        A client that waits for 0.5 s only may lose patience with a distant cluster.
        """
        is_patient = self._setup.request_timeout_ms >= CLIENTS["request_timeout_ms"]
        if name in _TIME_OUTS and is_patient and self.world.now_s > since_s:
            self._found(HighWatermarks, [f"{HOST.get()}, {self.world.now_s:.2f} s, without faults: {name}"])

    def _raise_findings(self) -> None:
        """Raise the first finding in what has changed since the start."""
        self.world.tree_changes.raise_findings()
        self._rebuilt_logs.raise_findings()
        self._replies.raise_findings()

    def _found(self, check: Callable[..., object], findings: list[str]) -> None:
        self.findings += findings
        self.found_by += [check.__module__.removeprefix("odradek.simulation.")] * len(findings)

    def perturbs(self, name: str) -> bool:
        """Return whether to perturb a marked place now; a seed draws which places, and when."""
        if name not in self._perturbed:
            chance = self.world.simulation.entropy(f"perturbation: {name}")
            self._perturbed[name] = chance if chance.random() < _PERTURBED_SHARE else None
        drawn = self._perturbed[name]
        return drawn is not None and drawn.random() < _PERTURBED_TIMES

    def run(self) -> None:
        try:
            self.world.play(self._scenario)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # every failure of the cluster is a finding
            self.findings.append(_sentence(error))
            self.found_by.append(_module(error))
            self.error = "".join(traceback.format_exception(error))


def run_seed(plan: SeedPlan, *, new_world: Callable[..., World] = World) -> SeedResult:
    """Play a plan in a new world, and return the outcome."""
    play = _Play(plan, new_world)
    with collecting() as counts, perturbing(play.perturbs):
        play.run()
    trace = play.world.simulation.trace
    return SeedResult(
        plan=plan,
        digest=trace.digest,
        findings=play.findings,
        found_by=play.found_by,
        deeds=play.schedule.done,
        virtual_s=round(play.world.now_s, 3),
        events=trace.count,
        trace=trace.last_notes(),
        messages=[*play.messages],
        error=play.error,
        probes=dict(sorted(counts.probes.items())),
        transitions=dict(sorted(counts.transitions.items())),
    )


def _sentence(error: BaseException) -> str:
    error = _first(error)
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    text = f"{type(error).__name__} {str(error).partition(chr(10))[0]}".rstrip()
    if isinstance(error, TimeoutError | LivelockError):
        return f"something never ends: {text if isinstance(error, LivelockError) else _waiting(error) or text}"
    return text


def _waiting(error: BaseException) -> str:
    """Return the name and the line of the fault, workload or check that waited when `error` was raised."""
    found = _frames(error)
    return f"{found[-1][1]}, {found[-1][0]} line {found[-1][2]}" if found else ""


def _module(error: BaseException) -> str:
    """Return the module of the fault, workload or check that raised `error` or waited when it was raised."""
    files = [file for file, _, _ in _frames(_first(error))]
    rooms = [file for file in files if file.startswith(("checks/", "faults/", "workloads/"))]
    return (rooms or files or ["seed_run.py"])[-1].removesuffix(".py").replace("/", ".")


def _frames(error: BaseException) -> list[tuple[str, str, int]]:
    """Return file, function and line of the frames of the simulator, the last one last."""
    root = f"{Path(__file__).parent}/"
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return [
        (code.co_filename.removeprefix(root), code.co_qualname, line)
        for code, line in frames
        if code.co_filename.startswith(root)
    ]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
