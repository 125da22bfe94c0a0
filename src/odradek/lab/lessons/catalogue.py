"""The lessons, in the order in which a newcomer reads them."""

from typing import Final

from odradek.lab.case import LabError
from odradek.lab.lessons import assignor_lessons, group_lessons, partitioner_lessons
from odradek.lab.lessons.lesson import Lesson

SECTIONS: Final = {
    2: "Partitioners: which partition gets a record",
    3: "Assignors: which member gets a partition",
    4: "Generation 1: groups in ZooKeeper",
    5: "Reading without a group",
    6: "Generations 2 and 3: the coordinator",
}
LESSONS: Final[tuple[Lesson, ...]] = (
    *partitioner_lessons.LESSONS,
    *assignor_lessons.LESSONS,
    *group_lessons.LESSONS,
)
_BY_ADDRESS: Final = {(lesson.section, lesson.key): lesson for lesson in LESSONS}


def lesson_of(section: int, key: str) -> Lesson:
    """Return a lesson. Raises `LabError` for an unknown one."""
    found = _BY_ADDRESS.get((section, key))
    if found is None:
        raise LabError(f"there is no lesson {key} of section {section}")
    return found
