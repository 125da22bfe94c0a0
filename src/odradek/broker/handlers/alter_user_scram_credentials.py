"""AlterUserScramCredentials: set and delete SCRAM credentials of users in the tree (KIP-554). Any broker serves it.

A client sends the salted password; the tree gets the keys that a broker needs. Other keys of the user's node stay. As
the KIP says and unlike Kafka's controller, a request may alter both mechanisms of a user.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.config_changes import ConfigChange
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError
from odradek.security.sasl.exchange import LONGEST_NAME
from odradek.security.sasl.scram import (
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_MECHANISMS,
    credential_of_salted,
    encode_credential,
)

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest as Message
    from kio.schema.alter_user_scram_credentials.v0.request import ScramCredentialDeletion, ScramCredentialUpsertion

_LONGEST_SALT: Final = 1024


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per user, whose alterations are made completely or not at all."""
    alterations: dict[str, dict[str, str | None]] = {}
    errors: dict[str, KafkaError] = {}
    named: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*message.deletions, *message.upsertions]
    async for place, each in cooperatively(enumerate(named, -len(message.deletions))):
        of_user = alterations.setdefault(each.name, {})
        try:
            mechanism = _mechanism(each)
            if mechanism in of_user:
                raise KafkaError(
                    ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
                )
            of_user[mechanism] = None if place < 0 else _credential(mechanism, message.upsertions[place])
        except KafkaError as error:
            errors.setdefault(each.name, error)
    changes = {
        user: ConfigChange(user=user, change=partial(_altered, alterations[user]))
        for user in alterations
        if user not in errors
    }
    try:
        made = await broker.metadata_loop.change_configs(list(changes.values())) if changes else []
        errors |= {user: error for user, error in zip(changes, made, strict=True) if error is not None}
    except KafkaError as error:
        errors |= dict.fromkeys(changes, error)
    for user in sorted(changes.keys() - errors.keys()):
        made_of = (f"{'removed' if text is None else 'set'} {name}" for name, text in alterations[user].items())
        context.log_change(f"user {user!r}: {', '.join(made_of)}")
    return {"results": [_result(user, errors.get(user)) for user in alterations]}


def _mechanism(alteration: "ScramCredentialDeletion | ScramCredentialUpsertion") -> str:
    if not alteration.name:
        raise KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if len(alteration.name) > LONGEST_NAME:
        raise KafkaError(ErrorCode.unacceptable_credential, f"Username has more than {LONGEST_NAME} characters")
    mechanism = SCRAM_MECHANISMS.get(alteration.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    return mechanism


def _credential(mechanism: str, upsertion: "ScramCredentialUpsertion") -> str:
    """Return the text of a credential in the tree. Raises `KafkaError` UNACCEPTABLE_CREDENTIAL."""
    reason = None
    if upsertion.iterations < FEWEST_ITERATIONS:
        reason = "Too few iterations"
    elif upsertion.iterations > MOST_ITERATIONS:
        reason = "Too many iterations"
    elif not 0 < len(upsertion.salt) <= _LONGEST_SALT or not upsertion.salted_password:
        reason = f"The salt has 1 to {_LONGEST_SALT} bytes, and the salted password is not empty"
    if reason is not None:
        raise KafkaError(ErrorCode.unacceptable_credential, reason)
    salt, salted = bytes(upsertion.salt), bytes(upsertion.salted_password)
    return encode_credential(credential_of_salted(mechanism, salted, salt=salt, iterations=upsertion.iterations))


def _altered(alterations: Mapping[str, str | None], before: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    for mechanism, text in alterations.items():
        if text is not None:
            after[mechanism] = text
        elif after.pop(mechanism, None) is None:
            raise KafkaError(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
    return after


def _result(user: str, error: KafkaError | None) -> dict[str, object]:
    code, sentence = (ErrorCode.none, None) if error is None else (error.code, str(error))
    return {"user": user, "error_code": code, "error_message": sentence}
