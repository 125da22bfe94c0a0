"""Sessions end with their users, and one user's logins do not end those of others (X3)."""

from typing import Any

import pytest
from msgspec.structs import replace

from odradek.model import AuthenticationError, UnavailableError
from odradek.page import sessions
from odradek.page.sessions import Sessions
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime

pytestmark = pytest.mark.asyncio


class MovedClock:
    """A clock that a test moves."""

    seconds = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


class Broker:
    """The brokers, which refuse logins with `error`, if any."""

    error: Exception | None = None
    logins = 0

    def __init__(self, **client: Any) -> None:
        del client

    async def __aenter__(self) -> None:
        Broker.logins += 1
        if Broker.error is not None:
            raise Broker.error

    async def __aexit__(self, *_: object) -> None:
        return


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    monkeypatch.setattr(sessions, "Admin", Broker)
    Broker.error, Broker.logins = None, 0
    return MovedClock()


def begin(clock: MovedClock) -> Sessions:
    return Sessions(PageSettings(requires_login=True), replace(system_runtime(), clock=clock))


async def test_the_session_of_a_deleted_user_ends_within_a_minute(clock: MovedClock) -> None:
    all_sessions = begin(clock)
    session = await all_sessions.add({}, "alice")
    Broker.error = AuthenticationError("deleted")
    assert await all_sessions.is_valid(session)
    clock.seconds += 61
    assert not await all_sessions.is_valid(session)
    cookie = f"{sessions.cookie_name('session', '80')}={session.key}"
    assert all_sessions.find(cookie, "80") is None


async def test_a_session_outlasts_brokers_that_are_away_and_is_checked_once_a_minute(clock: MovedClock) -> None:
    all_sessions = begin(clock)
    session = await all_sessions.add({}, "alice")
    Broker.error = UnavailableError("away")
    clock.seconds += 61
    for _ in range(10):
        assert await all_sessions.is_valid(session)
    assert Broker.logins == 1


async def test_many_logins_of_one_user_end_its_own_sessions_only(clock: MovedClock) -> None:
    all_sessions = begin(clock)
    other = await all_sessions.add({}, "alice")
    own = []
    for _ in range(1_000):
        clock.seconds += 0.01
        own.append(await all_sessions.add({}, "bob"))

    def is_there(key: str) -> bool:
        return all_sessions.find(f"{sessions.cookie_name('session', '80')}={key}", "80") is not None

    assert is_there(other.key)
    assert [is_there(each.key) for each in own] == [False] * 980 + [True] * 20
