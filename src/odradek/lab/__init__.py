"""The lab: computes which member gets which partition, why, and the cost of a change of the group.

A `Case` is a group as data; `runs` runs an assignment strategy on it. Nothing here prints; `odradek lab` does.
Notebooks show the results (`Run`, `Comparison`, `Transition`, `Timeline`, `Costs`) as `pictures`.
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
