"""DescribeUserScramCredentials: the SCRAM mechanisms of users, with their iterations (KIP-554)."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode
from odradek.security.sasl.scram import SCRAM_MECHANISMS, decode_credential

if TYPE_CHECKING:
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per user; without names, of all users that have a credential.

    A user without a credential gets RESOURCE_NOT_FOUND, one that the request names twice DUPLICATE_RESOURCE.
    """
    del context
    configs = broker.image.user_configs
    named = Counter(each.name for each in message.users or ())
    results = []
    async for user in cooperatively(list(named or configs)):
        error, sentence, found = ErrorCode.none, None, _credentials(configs.get(user, {}))
        if named[user] > 1:
            error, found = ErrorCode.duplicate_resource, []
            sentence = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        elif not found and not named:
            continue  # the user has only quotas
        elif not found:
            error = ErrorCode.resource_not_found
            sentence = f"Attempt to describe a user credential that does not exist: {user}"
        results.append({"user": user, "error_code": error, "error_message": sentence, "credential_infos": found})
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _credentials(config: Mapping[str, str]) -> list[dict[str, int]]:
    decoded = {number: decode_credential(config.get(name, "")) for number, name in SCRAM_MECHANISMS.items()}
    return [
        {"mechanism": number, "iterations": credential.iterations}
        for number, credential in decoded.items()
        if credential is not None
    ]
