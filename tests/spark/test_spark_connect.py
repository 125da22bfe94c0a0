"""Sessions of Spark Connect, without a server: settings, copies and their end."""

from types import SimpleNamespace
from typing import Any

from odradek.spark.connect import _fit_shuffle_partitions, copy_session
from odradek.spark.master import SHUFFLE_PARTITIONS
from odradek.spark.session import stop_session


class Session:
    """The calls of a Spark Connect session that Odradek makes at its start and end."""

    def __init__(self, partitions: str = "200") -> None:
        self.steps: list[Any] = []
        self.client = SimpleNamespace(set_retry_policies=lambda policies: self.steps.append(policies))
        values = {SHUFFLE_PARTITIONS: partitions}
        self.conf = SimpleNamespace(get=values.get, set=values.__setitem__)

    def cloneSession(self) -> "Session":
        return Session()

    def range(self, end: int) -> Any:
        return SimpleNamespace(_explain_string=lambda: "*(1) Range (0, 1, step=1, splits=6)")

    def stop(self) -> None:
        self.steps.append("stopped")


def test_the_end_of_a_session_ends_its_copies_without_retries() -> None:
    session = Session()
    copies = [copy_session(session), copy_session(session)]
    stop_session(session)
    assert [each.steps for each in (session, *copies)] == [[[], "stopped"]] * 3


def test_shuffle_partitions_are_the_cores_of_the_server_unless_they_are_chosen() -> None:
    for partitions, settings, expected in (
        ("200", {}, "6"),
        ("50", {}, "50"),
        ("200", {SHUFFLE_PARTITIONS: "200"}, "200"),
    ):
        session = Session(partitions)
        _fit_shuffle_partitions(session, settings)
        assert session.conf.get(SHUFFLE_PARTITIONS) == expected
