"""Logins with SASL credentials of the cluster, and the addresses that need them."""

import asyncio
from html import unescape
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.clients import Admin
from odradek.clients.admin.user_credentials import UserScramCredentialUpsertion
from odradek.model import AuthenticationError, ConfigurationError, UnavailableError
from odradek.page import sessions
from odradek.page.login import Attempts, inside
from odradek.page.sessions import Sessions
from odradek.page.settings import PageSettings, check_exposure, login_settings
from odradek.runtime import system_runtime
from odradek.simulation.virtual.clock import VirtualClock
from odradek.testing import Cluster
from tests.page.visitor import visiting

LOGGED_IN = {"user": "alice", "password": "alice-secret"}


def _settings(cluster: Cluster) -> PageSettings:
    return PageSettings(client=cluster.settings("alice"), requires_login=True)


@pytest.mark.asyncio
async def test_a_user_logs_in_acts_as_itself_and_logs_out(secure_kafka: Cluster) -> None:
    async with visiting(_settings(secure_kafka)) as visitor:
        first = await visitor.get("/topics?q=x")
        assert (first.status, first.headers["location"]) == (303, "/login?next=%2Ftopics%3Fq%3Dx")
        assert "Log in" in (await visitor.get("/login")).text
        done = await visitor.post("/login?next=%2Ftopics%3Fq%3Dx", LOGGED_IN)
        assert (done.status, done.headers["location"]) == (303, "/topics?q=x")
        assert {"httponly", "samesite=strict"} <= set(done.headers["set-cookie"].lower().split("; "))
        shown = await visitor.get("/")
        assert shown.status == 200
        assert "<span>alice</span>" in shown.text
        assert "alice-secret" not in shown.text
        cookies = dict(visitor.cookies)
        async with visitor.watching("/") as parts:
            assert (await anext(parts))["id"]
            assert (await visitor.post("/logout", {})).status == 303
            async with asyncio.timeout(20):
                async for _ in parts:  # until the stream ends
                    pass
        visitor.cookies = cookies
        assert (await visitor.get("/")).status == 303


@pytest.mark.asyncio
async def test_wrong_credentials_and_foreign_cookies_open_nothing(secure_kafka: Cluster) -> None:
    async with visiting(_settings(secure_kafka)) as visitor:
        refused = await visitor.post("/login", {"user": "alice", "password": "guessed"})
        assert refused.status == 401
        assert "The cluster refuses the login" in refused.text
        assert "guessed" not in refused.text
        assert (await visitor.post("/login", {"user": "", "password": "x"})).status == 401
        visitor.cookies = {"odradek-session-8080": "0" * 48}
        assert (await visitor.get("/")).status == 303
        assert (await visitor.post("/create-topic", {"name": "x"}, visitor.app.sessions.login_token)).status == 401
        assert (await visitor.get("/", accept="text/event-stream")).status == 401
        assert (await visitor.get("/static/page.css")).status == 200


@pytest.mark.asyncio
async def test_a_user_of_scram_logs_in_on_a_page_that_uses_plain_and_a_wrong_password_counts_once(
    secure_kafka: Cluster,
) -> None:
    client = secure_kafka.settings("alice") | {"sasl_mechanism": "PLAIN"}
    async with visiting(PageSettings(client=client, requires_login=True)) as visitor:
        for user in ("alice", "nobody"):
            refused = unescape((await visitor.post("/login", {"user": user, "password": "guessed"})).text)
            assert "The cluster refuses the login: the user or the password is wrong" in refused
        assert visitor.app._attempts._count["127.0.0.1", "alice"] == 1
        async with Admin(**secure_kafka.settings()) as admin:
            added = UserScramCredentialUpsertion(user="carol", mechanism="SCRAM-SHA-512", password="secret")
            await admin.alter_user_scram_credentials([added])
        async with asyncio.timeout(20):
            while (await visitor.post("/login", {"user": "carol", "password": "secret"})).status != 303:
                visitor.app._attempts._count.clear()  # the broker has not read the user yet
        assert "<span>carol</span>" in (await visitor.get("/")).text


def test_a_password_is_sent_as_it_is_only_if_the_page_does_so_or_to_a_broker_of_tls() -> None:
    def mechanisms(**client: str) -> list[str]:
        return [each["sasl_mechanism"] for each in login_settings(client, "alice", "x")]

    strong = ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert mechanisms(security_protocol="SASL_PLAINTEXT") == strong
    assert mechanisms(security_protocol="SASL_SSL") == [*strong, "PLAIN"]
    assert mechanisms(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN") == [*strong, "PLAIN"]
    assert mechanisms(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256") == strong[::-1]


def test_after_twenty_wrong_logins_a_user_of_an_address_waits_and_others_do_not() -> None:
    clock = VirtualClock()
    attempts = Attempts(clock)
    attempts.begin("10.0.0.1", "alice")
    attempts.succeed("10.0.0.1", "alice")
    for _ in range(20):
        attempts.begin("10.0.0.1", "alice")
    with pytest.raises(ConfigurationError, match="try again in a minute"):
        attempts.begin("10.0.0.1", "alice")
    attempts.begin("10.0.0.1", "bob")
    attempts.begin("10.0.0.2", "alice")
    clock.advance(60)
    attempts.begin("10.0.0.1", "alice")


def test_an_address_that_tries_many_users_waits_and_its_count_outlasts_many_other_addresses() -> None:
    attempts = Attempts(VirtualClock())
    for number in range(200):
        attempts.begin("10.0.0.1", f"user-{number}")
    for number in range(30_000):
        attempts.begin(f"2001:db8::{number:x}", "alice")
    with pytest.raises(ConfigurationError, match="try again in a minute"):
        attempts.begin("10.0.0.1", "another")
    attempts.begin("10.0.0.2", "alice")
    assert len(attempts._count) <= 10_000


@pytest.mark.asyncio
async def test_two_pages_of_one_host_have_sessions_of_their_own(secure_kafka: Cluster) -> None:
    async with visiting(_settings(secure_kafka)) as visitor:
        await visitor.post("/login", LOGGED_IN)
        assert set(visitor.cookies) == {"odradek-session-8080"}
        visitor.host = "127.0.0.1:9090"
        assert (await visitor.get("/")).status == 303


@pytest.mark.parametrize(
    "address", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nb", "//["]
)
def test_a_login_leads_to_addresses_of_the_page_only(address: str) -> None:
    assert inside(address) == "/"
    assert inside("/topics?q=a") == "/topics?q=a"


SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("host", "client", "has_tls", "words"),
    [
        ("0.0.0.0", SASL, False, "--tls-certificate"),
        ("0.0.0.0", {}, True, "a login needs a cluster with SASL"),
        ("127.0.0.1", {"security_protocol": "SSL"}, False, "a login needs a cluster with SASL"),
        ("127.0.0.1", SASL | {"sasl_mechanism": "OAUTHBEARER"}, False, "OAUTHBEARER"),
    ],
)
def test_an_address_that_cannot_have_a_safe_login_is_refused(
    host: str, client: dict[str, str], has_tls: bool, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_exposure(host, client, has_tls=has_tls, requires_login=True)
    check_exposure("127.0.0.1", SASL, has_tls=False, requires_login=True)
    check_exposure("0.0.0.0", SASL, has_tls=True, requires_login=True)


# ---- Sessions --------------------------------------------------------------------------------------------------------


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


@pytest.mark.asyncio
async def test_the_session_of_a_deleted_user_ends_within_a_minute(clock: MovedClock) -> None:
    all_sessions = begin(clock)
    session = await all_sessions.add({}, "alice")
    Broker.error = AuthenticationError("deleted")
    assert await all_sessions.is_valid(session)
    clock.seconds += 61
    assert not await all_sessions.is_valid(session)
    cookie = f"{sessions.cookie_name('session', '80')}={session.key}"
    assert all_sessions.find(cookie, "80") is None


@pytest.mark.asyncio
async def test_a_session_outlasts_brokers_that_are_away_and_is_checked_once_a_minute(clock: MovedClock) -> None:
    all_sessions = begin(clock)
    session = await all_sessions.add({}, "alice")
    Broker.error = UnavailableError("away")
    clock.seconds += 61
    for _ in range(10):
        assert await all_sessions.is_valid(session)
    assert Broker.logins == 1


@pytest.mark.asyncio
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
