"""The lab: which member gets which partition, why, and what a change of the group would cost.

A `Case` is a group on paper: topics, members, what they own. `notation` reads it from short texts, `toml_cases` from a
file, `live` from a cluster. `runs` runs a strategy over it, `measures` says how good the result is. Nothing here
prints; `odradek lab` does.
"""

from odradek.lab.case import Case, LabError, Member
from odradek.lab.measures import Measures, measure
from odradek.lab.runs import Protocol, Run, run_strategy

__all__ = ["Case", "LabError", "Measures", "Member", "Protocol", "Run", "measure", "run_strategy"]
