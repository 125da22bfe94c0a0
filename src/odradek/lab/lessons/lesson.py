"""A lesson's values, and the computation of its examples."""

from collections.abc import Callable
from inspect import getsource
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.lab.case import Case
from odradek.lab.lessons.tables import Partitions, Table
from odradek.lab.notation import case_of_texts, partitions_text
from odradek.lab.pictures.charts import Block, BlockPanel, Blocks, Chart
from odradek.lab.pictures.views import assignment_chart
from odradek.lab.runs import Run, run_strategy
from odradek.partitioners import BatchAware, KeyRule, LoadAware, create_partitioner

_BATCH: Final = 4
"""Records of a batch in the examples."""


class Assigned(Struct, frozen=True, kw_only=True):
    """An assignment: the case in the lab's notation, and the shares that the lesson states, by member or thread."""

    strategy: str
    topics: tuple[str, ...]
    members: tuple[str, ...]
    states: dict[str, str] = {}
    """The partitions of each member, as `t:0-2`; an empty text is none. Empty if chance decides."""
    owned: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    replica_racks: tuple[str, ...] = ()
    generations: dict[str, int] = {}
    """The generation in which each member owned its partitions, if they differ."""
    first: dict[str, str] = {}
    """The shares in the first of a cooperative group's two generations, if the lesson states them."""

    @property
    def case(self) -> Case:
        case = case_of_texts(
            topics=self.topics,
            members=self.members,
            owned=self.owned,
            threads=self.threads,
            instances=self.instances,
            racks=self.racks,
            replica_racks=self.replica_racks,
        )
        aged = {name: replace(case.members[name], generation=each) for name, each in self.generations.items()}
        return replace(case, members={**case.members, **aged})

    def run(self) -> Run:
        return run_strategy(self.case, self.strategy)

    def computed(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return what the strategy gives, as `states` and `first` have it."""
        run = self.run()
        settled, first = (
            {name: partitions_text(some) for name, some in shares.items()}
            for shares in (run.settled if run.threads is None else run.threads, run.first)
        )
        return settled, first

    def chart(self) -> Chart:
        return assignment_chart(self.run(), self.case.owners())

    @property
    def command(self) -> str:
        """The command that computes the same; empty if options cannot say it."""
        if self.generations:
            return ""
        options = [f"--topic {each}" for each in self.topics] + [f"--member {each}" for each in self.members]
        options += [f"--owned {each}" for each in self.owned] + [f"--threads {each}" for each in self.threads]
        options += [f"--instance {each}" for each in self.instances] + [f"--rack {each}" for each in self.racks]
        options += [f"--replica-rack {each}" for each in self.replica_racks]
        return f"odradek lab assign --strategy {self.strategy} {' '.join(options)}"


class Placed(Struct, frozen=True, kw_only=True):
    """Records that a partitioner places, in batches of four without a key; None is a record without one."""

    partitioner: str
    keys: tuple[str | None, ...]
    partitions: int
    states: dict[int, str] = {}
    """The records of each partition, by number from 1 on or by key; empty if chance decides."""
    queues: tuple[int, ...] = ()
    """The batches that wait for each partition's broker."""
    leaderless: tuple[int, ...] = ()

    def computed(self) -> dict[int, str]:
        """Return the records of each partition."""
        cluster = Partitions(self.partitions, self.leaderless)
        partitioner = create_partitioner(self.partitioner, entropy=Random(1), monotonic=lambda: 0.0, batch_size=_BATCH)
        if self.queues and isinstance(partitioner, LoadAware):
            partitioner.update_load("t", dict(enumerate(self.queues)), partition_count=self.partitions)
        found: dict[int, list[str]] = {number: [] for number in range(self.partitions)}
        for number, key in enumerate(self.keys, 1):
            place = partitioner.partition("t", None if key is None else key.encode(), b"", cluster)
            found[place].append(str(number) if key is None else key)
            if key is not None and getattr(partitioner, "key_rule", None) is not KeyRule.IGNORED:
                continue
            if isinstance(partitioner, LoadAware):
                partitioner.on_appended("t", place, 1, cluster, batch_ready=True)
            elif isinstance(partitioner, BatchAware) and number % _BATCH == 0:
                partitioner.on_new_batch("t", cluster, place)
        return {number: " ".join(some) for number, some in found.items()}

    def chart(self) -> Chart:
        """Return the drawing: a row for each partition, a box for each record."""
        placed = self.computed()
        rows = tuple(tuple(Block(label=each, kind=0) for each in placed[number].split()) for number in placed)
        what = "keys" if all(key is not None for key in self.keys) else "records without a key, by number"
        return Blocks(
            title=f"{self.partitioner}: {len(self.keys)} {what}, {self.partitions} partitions",
            names=tuple(f"partition {number}" for number in placed),
            panels=(BlockPanel(title="", rows=rows),),
            legend=(),
        )


class Played(Struct, frozen=True, kw_only=True):
    """A script that the player plays, and the moment to look at first."""

    script: str
    partitions: int = 6
    at_ms: int = 0
    shares: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """`(time in ms, sorted numbers of partitions of the members then)` in every generation, if the lesson states it."""


class Lesson(Struct, frozen=True, kw_only=True):
    """A lesson: a few sentences, what to look at, and the examples."""

    key: str
    section: int
    title: str
    text: str
    look: str
    assigned: tuple[Assigned, ...] = ()
    placed: tuple[Placed, ...] = ()
    played: Played | None = None
    tables: tuple[Callable[[], Table], ...] = ()
    code: type | None = None
    """A class whose source is shown."""

    @property
    def source(self) -> str:
        """The source of `code`; empty if there is none."""
        return "" if self.code is None else getsource(self.code)
