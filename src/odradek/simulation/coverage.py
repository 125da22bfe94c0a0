"""Lists of the rare branches and transitions in the source, and of those that no seed has reached.

Rare branches are marked with `probe` and `perturb` of `odradek.model.probes`; `probes` reads their names from the
source files. Transitions come from the tables of the state machines.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from odradek.broker.groups.machine.classic import classic_group as classic_groups
from odradek.broker.groups.machine.consumer.member import MemberState
from odradek.broker.transactions.machine import transaction as transactions
from odradek.clients.consumer.membership import classic_membership_manager
from odradek.clients.producer.transactions import machine as producers
from odradek.model.probes import ProbeCounts

_MARK: Final = re.compile(r'\b(?:probe|perturb)\(\s*"([^"]+)"')
_TABLES: Final[Mapping[str, Any]] = {
    "classic group": classic_groups.TRANSITIONS,
    "classic member": classic_membership_manager.TRANSITIONS,
    "transaction": transactions.TRANSITIONS,
    "transactional producer": producers.TRANSITIONS,
}


def probes() -> dict[str, str]:
    """Return the names of all marked branches, each with its file."""
    found: dict[str, str] = {}
    for path, text in _sources(files("odradek"), ""):
        if path != "/model/probes.py":
            found |= dict.fromkeys(_MARK.findall(text), path[1:])
    return found


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _sources(each, f"{path}/{each.name}")
        elif each.name.endswith(".py"):
            yield f"{path}/{each.name}", each.read_text(encoding="utf-8")


def transitions() -> set[str]:
    """Return all transitions that the tables allow, named as `transition` counts them."""
    found = {f"partition: {pair}" for pair in ("NEW -> ONLINE", "NEW -> OFFLINE")}
    found |= {f"partition: {one} -> {other}" for one in ("ONLINE", "OFFLINE") for other in ("ONLINE", "OFFLINE")}
    member_states = [each for each in MemberState if each is not MemberState.UNKNOWN]
    found |= {f"consumer group member: {one.name} -> {two.name}" for one in member_states for two in member_states}
    for machine, table in _TABLES.items():
        for before, following in table.items():
            states = following.values() if isinstance(following, Mapping) else following
            found |= {f"{machine}: {before.name} -> {after.name}" for after in states}
    return found


def unreached(counts: ProbeCounts) -> list[str]:
    """Return the names of branches, with their files, and of transitions that `counts` has not reached."""
    branches = [f"{name} ({path})" for name, path in sorted(probes().items()) if name not in counts.probes]
    return branches + [name for name in sorted(transitions()) if name not in counts.transitions]
