"""JoinGroup: a member joins the group's next generation, and waits for the end of the join phase.

Versions: 1 rebalance timeout, 4 MEMBER_ID_REQUIRED (KIP-394), 5 static members (KIP-345), 7 protocol type and nullable
protocol name in the response, 8 the client's reason (KIP-800), 9 a leader may skip the assignment (KIP-814).
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.messages import JoinReply, JoinRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import milliseconds, optional
from odradek.runtime import Entropy, uuid4

if TYPE_CHECKING:
    from kio.schema.join_group.v9.request import JoinGroupRequest as Message

_REQUIRES_MEMBER_ID_FROM: Final = 4
_NULL_PROTOCOL_NAME_FROM: Final = 7
_SKIPS_ASSIGNMENT_FROM: Final = 9
_LONGEST_NAME: Final = 249
"""Limit of the characters of a client id or instance id in a generated member id."""


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the response at the end of the join phase, or at once an error or the unchanged generation.

    INVALID_SESSION_TIMEOUT: the session timeout is outside `group.{min,max}.session.timeout.ms`.
    GROUP_MAX_SIZE_REACHED: the group is full, there is no memory for the member, or its protocols are too large.
    """
    request = _request(broker.runtime.entropy, context, message)
    shortest, longest = broker.config.group_min_session_timeout_ms, broker.config.group_max_session_timeout_ms
    member_id = message.member_id
    try:
        if message.group_id and not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(ErrorCode.invalid_session_timeout)
        joining = broker.groups.submit(message.group_id, request)
        if not joining.done():
            # The join may wait for minutes, so the request's memory is released; the group counts the protocols itself.
            kept_bytes = len(request.protocol_type) + len(request.reason)
            context.session.connection.forget_request(kept_bytes=kept_bytes)
        del message, request
        return _message(context, await joining)
    except KafkaError as error:
        return _message(context, JoinReply(error=error.code, member_id=member_id))


def _request(entropy: Entropy, context: RequestContext, message: "Message") -> JoinRequest:
    instance_id = optional(message, "group_instance_id", None)
    name = context.client_id if instance_id is None else instance_id
    session_timeout_ms = milliseconds(message.session_timeout)
    rebalance_timeout = getattr(message, "rebalance_timeout", None)
    rebalance_timeout_ms = -1 if rebalance_timeout is None else milliseconds(rebalance_timeout)
    return JoinRequest(
        member_id=message.member_id,
        new_member_id=f"{name[:_LONGEST_NAME]}-{uuid4(entropy)}",
        instance_id=instance_id,
        client_id=context.client_id,
        # Java prints addresses with a slash, which tools that read the records expect.
        client_host=f"/{context.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in message.protocols),
        requires_member_id=context.api_version >= _REQUIRES_MEMBER_ID_FROM,
        can_skip_assignment=context.api_version >= _SKIPS_ASSIGNMENT_FROM,
        reason=optional(message, "reason", ""),
    )


def _message(context: RequestContext, reply: JoinReply) -> dict[str, object]:
    protocol_name = reply.protocol_name
    if protocol_name is None and context.api_version < _NULL_PROTOCOL_NAME_FROM:
        protocol_name = ""
    return {
        "error_code": reply.error,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in reply.members
        ],
    }
