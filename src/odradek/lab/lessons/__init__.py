"""The lessons: one for each worked example of partitioners, assignors and groups, with computed numbers."""

from odradek.lab.lessons.catalogue import LESSONS, SECTIONS, lesson_of
from odradek.lab.lessons.lesson import Assigned, Lesson, Placed, Played
from odradek.lab.lessons.tables import Table

__all__ = ["LESSONS", "SECTIONS", "Assigned", "Lesson", "Placed", "Played", "Table", "lesson_of"]
