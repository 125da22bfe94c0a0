"""The SCRAM credentials of users (KIP-554). Passwords are salted here and never sent."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from odradek.clients.admin.results import RefusedUsersError, errors_of
from odradek.clients.admin.topics import answer_error
from odradek.clients.arguments import names_of
from odradek.clients.cluster import Cluster
from odradek.clients.retry import ask_each, retrying
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.security.sasl.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, SCRAM_MECHANISMS, salted_password

_NUMBERS: Final[Mapping[str, int]] = {name: number for number, name in SCRAM_MECHANISMS.items()}
_SALT_BYTES: Final = 32


class ScramCredentialInfo(Struct, frozen=True, kw_only=True):
    """A credential of a user: the mechanism and its iterations."""

    mechanism: str
    iterations: int


class UserScramCredentialUpsertion(Struct, frozen=True, kw_only=True):
    """Create or replace the credential of a user for a mechanism, SCRAM-SHA-256 or SCRAM-SHA-512."""

    user: str
    mechanism: str
    password: str
    iterations: int = FEWEST_ITERATIONS

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user!r}, {self.mechanism}, iterations={self.iterations})"


class UserScramCredentialDeletion(Struct, frozen=True, kw_only=True):
    """Delete the credential of a user for a mechanism."""

    user: str
    mechanism: str


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


async def describe_user_scram_credentials(
    cluster: Cluster, users: Iterable[str] = ()
) -> dict[str, list[ScramCredentialInfo]]:
    """Return the SCRAM credentials of users, by default of all that have some (KIP-554)."""
    wanted = [{"name": user} for user in dict.fromkeys(names_of(users))]

    async def attempt() -> dict[str, list[ScramCredentialInfo]]:
        connection = await cluster.connections.least_loaded()
        response = await connection.request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": wanted or None})
        errors = [answer_error("users", response), *(answer_error(f"user {e.user}", e) for e in response.results)]
        for error in filter(None, errors):
            if error.code is not ErrorCode.resource_not_found:
                raise error
        return {
            each.user: [
                ScramCredentialInfo(mechanism=SCRAM_MECHANISMS[int(info.mechanism)], iterations=info.iterations)
                for info in each.credential_infos
                if info.mechanism in SCRAM_MECHANISMS
            ]
            for each in sorted(response.results, key=lambda each: str(each.user))
        }

    return await retrying(cluster, attempt)


async def alter_user_scram_credentials(cluster: Cluster, alterations: Iterable[UserScramCredentialAlteration]) -> None:
    """Set and delete SCRAM credentials of users (KIP-554).

    Raises `RefusedUsersError` with the error of each refused user; the other users are altered.
    """
    rounds: list[dict[str, dict[str, Any]]] = []
    for each in alterations:
        message = _message(cluster, each)
        of_user = next((earlier for earlier in rounds if each.user not in earlier), None)
        if of_user is None:
            rounds.append(of_user := {})
        of_user[each.user] = message
    errors: dict[str, KafkaError] = {}
    for messages in rounds:
        wanted = [user for user in messages if user not in errors]
        ask = partial(_alter, cluster, messages)
        errors |= errors_of(await ask_each(cluster, wanted, ask))
    if errors:
        raise RefusedUsersError(errors)


def _message(cluster: Cluster, alteration: UserScramCredentialAlteration) -> dict[str, Any]:
    """Return an entry of the request. Raises `ValueError` for an unknown mechanism or wrong iterations."""
    mechanism = alteration.mechanism
    if mechanism not in _NUMBERS:
        raise ValueError(f"a mechanism is {' or '.join(_NUMBERS)}, not {mechanism!r}")
    message: dict[str, Any] = {"name": alteration.user, "mechanism": _NUMBERS[mechanism]}
    if isinstance(alteration, UserScramCredentialDeletion):
        return message
    iterations = alteration.iterations
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"iterations are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}, not {iterations}")
    salt = cluster.runtime.entropy.randbytes(_SALT_BYTES)
    salted = salted_password(mechanism, alteration.password, salt=salt, iterations=iterations)
    return {**message, "iterations": iterations, "salt": salt, "salted_password": salted}


async def _alter(
    cluster: Cluster, messages: Mapping[str, dict[str, Any]], users: list[str]
) -> Mapping[str, KafkaError | None]:
    wanted = [messages[user] for user in users]
    request = {
        "deletions": [each for each in wanted if "salt" not in each],
        "upsertions": [each for each in wanted if "salt" in each],
    }
    connection = await cluster.connections.least_loaded()
    response = await connection.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    return {each.user: answer_error(f"user {each.user}", each) for each in response.results}
