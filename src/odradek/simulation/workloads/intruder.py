"""An intruder that tries what nobody may do: without a login, with a wrong or former password, or without an ACL."""

import asyncio
import dataclasses
from collections.abc import Collection, Iterator
from typing import Any, Final

from odradek.model import AuthenticationError, ErrorCode, OdradekError
from odradek.protocol.api import ApiKey
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.wire_client import WireClient, create_topic_message, fetch_message
from odradek.simulation.world import World
from odradek.wire.client_security import password_login

_TRY_S: Final = 10.0
_REFUSALS: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)


class Intruder:
    """Connects to brokers as the user `stranger`, who has no ACL, as users whose password it lacks, and as nobody.

    `topic` exists; `former` has the passwords of `clerk` that every running broker knows to be replaced.
    """

    def __init__(self, world: World, topic: str, password: str, former: Collection[str]) -> None:
        self._world = world
        self._requests = _requests(topic)
        self._password = password
        self._former = former
        self._chance = world.simulation.entropy("intruder")

    async def run(self) -> None:
        """Try one thing after the other, until cancelled. Raise `BrokenPromiseError` when one succeeds."""
        while True:
            number = self._chance.choice(sorted(self._world.running) or [0])
            deed = self._chance.choice((self._without_login, self._with_wrong_password, self._without_rights))
            try:
                async with asyncio.timeout(_TRY_S):
                    await deed(number)
            except (OdradekError, OSError, TimeoutError):
                pass
            await asyncio.sleep(self._chance.choice((0.2, 1.0)))

    async def must_fail(self, user: str, password: str, number: int) -> None:
        """Raise `BrokenPromiseError` if a broker accepts this password."""
        client = await self._connect(number)
        try:
            await self._log_in(client, user, password, "SCRAM-SHA-256")
        except AuthenticationError:
            return
        finally:
            client.close()
        raise BrokenPromiseError(f"broker {number} accepted the password {password} of {user}")

    async def _connect(self, number: int) -> WireClient:
        network = self._world.simulation.runtime("intruder").network
        return await WireClient.connect(network, self._world.hosts[number], client_id="intruder")

    async def _without_login(self, number: int) -> None:
        client = await self._connect(number)
        try:
            api, message, version = self._chance.choice(self._requests)
            answer = await client.ask(api, message, version)
            raise BrokenPromiseError(f"broker {number} answered {api.name} without a login: {answer}")
        finally:
            client.close()

    async def _with_wrong_password(self, number: int) -> None:
        former = [("clerk", each) for each in sorted(self._former)]
        await self.must_fail(*self._chance.choice([("application", "wrong"), *former]), number)

    async def _without_rights(self, number: int) -> None:
        client = await self._connect(number)
        try:
            await self._log_in(client, "stranger", self._password, "PLAIN")
            for api, message, version in self._requests:
                answer = await client.ask(api, message, version)
                if not any(error in _REFUSALS for error in _errors(answer)):
                    raise BrokenPromiseError(f"broker {number} allowed {api.name} to a user without ACLs: {answer}")
        finally:
            client.close()

    async def _log_in(self, client: WireClient, user: str, password: str, mechanism: str) -> None:
        entropy = self._world.simulation.runtime("intruder").entropy
        await client.log_in(password_login(mechanism, {"username": user, "password": password}, entropy))


def _requests(topic: str) -> list[tuple[ApiKey, Any, int]]:
    """Return the requests of an intruder: API, message, version."""
    record = {"topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": bytes(World.batch(b"x"))}]}]}
    place = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}
    commit = {"group_id": "consumers", "generation_id_or_member_epoch": -1, "member_id": ""}
    acl = {"resource_type": 2, "resource_name": "*", "resource_pattern_type": 3, "principal": "User:stranger"}
    return [
        (ApiKey.PRODUCE, {"transactional_id": None, "acks": -1, "timeout": 1_000, **record}, 11),
        (ApiKey.FETCH, fetch_message([(topic, 0, 0)], version=12), 12),
        (ApiKey.CREATE_TOPICS, create_topic_message("of-the-intruder"), 5),
        (ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout": 1_000}, 4),
        (ApiKey.OFFSET_COMMIT, {**commit, "topics": [{"name": topic, "partitions": [place]}]}, 7),
        (ApiKey.INIT_PRODUCER_ID, {"transactional_id": "chain", "transaction_timeout": 1_000}, 1),
        (ApiKey.CREATE_ACLS, {"creations": [{**acl, "host": "*", "operation": 2, "permission_type": 3}]}, 1),
    ]


def _errors(message: Any) -> Iterator[int]:
    if isinstance(message, tuple | list):
        for each in message:
            yield from _errors(each)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if field.name == "error_code":
                yield value
            else:
                yield from _errors(value)
