"""The lab: which member gets which partition, why, and what a change of the group would cost.

A `Case` is a group on paper: topics, members, what they own. `notation` reads it from short texts, `toml_cases` from a
file, `live` from a cluster. `runs` runs a strategy over it, `measures` says how good the result is. Nothing here
prints; `odradek lab` does. In a notebook, the results (`Run`, `Comparison`, `Transition`, `Timeline` and `Costs`) show
themselves as `pictures`.
"""

from odradek.lab.case import Case, LabError, Member
from odradek.lab.costs import Cost, Costs
from odradek.lab.measures import Comparison, Measures, compare, measure
from odradek.lab.notation import case_of_texts
from odradek.lab.runs import Protocol, Run, run_strategy
from odradek.lab.timeline import Timeline
from odradek.lab.what_if import Change, Transition

__all__ = [
    "Case",
    "Change",
    "Comparison",
    "Cost",
    "Costs",
    "LabError",
    "Measures",
    "Member",
    "Protocol",
    "Run",
    "Timeline",
    "Transition",
    "case_of_texts",
    "compare",
    "measure",
    "run_strategy",
]
