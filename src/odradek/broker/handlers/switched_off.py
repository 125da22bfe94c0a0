"""The APIs of features that are off here: share and streams groups, delegation tokens, voters of a quorum.

Kafka lists them in ApiVersions whether or not their feature is on, and so does this broker. The answer is Kafka's while
the feature is off, in the body: UNSUPPORTED_VERSION, for tokens an error of theirs. Nothing needs a permission.
"""

from typing import Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.serving.responses import counted_refusal
from odradek.broker.turns import LARGE_BYTES
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import decode_request
from odradek.protocol.primitives import Meter
from odradek.wire.reply import Reply

_NO_VOTERS: Final = "Cluster doesn't support %s voter because the kraft.version feature is 0"
_TEXTS: Final = {ApiKey.ADD_RAFT_VOTER: _NO_VOTERS % "adding", ApiKey.REMOVE_RAFT_VOTER: _NO_VOTERS % "removing"}
_TOKENS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)


def handle(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Return the error for everything that the request names. A large request closes its connection."""
    header, key = context.header, ApiKey(context.api_key)
    if len(frame) > LARGE_BYTES:
        raise KafkaError(ErrorCode.unsupported_version, "the feature of this API is off")
    meter = Meter(broker.config.most_request_entries)
    request = decode_request(key, header.api_version, bytes(frame[header.body_offset :]), meter=meter)
    code = _error_code(key, context)
    text = "The version of API is not supported." if code is ErrorCode.unsupported_version else None
    error = KafkaError(code, _TEXTS.get(key, text))
    return counted_refusal(broker.counters, header, request, error)


def _error_code(key: ApiKey, context: RequestContext) -> ErrorCode:
    if key not in _TOKENS:
        return ErrorCode.unsupported_version
    if context.session.authentication is None:
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled
