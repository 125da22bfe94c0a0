"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Versions: 1 filter by duration (KIP-994), 2 filter by a pattern of RE2 (KIP-1152). Unknown states in the filter are
returned as such; ids that the client may not describe are left out.
"""

from typing import Any, Protocol

import re2

from odradek.broker.cooperation import Steps
from odradek.broker.parts import HasRuntime, HasTransactions
from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType
from odradek.transactions import TransactionMetadata, TransactionState


class _Broker(HasRuntime, HasTransactions, Protocol): ...


_STATES = {state.text for state in TransactionState}


def handle(broker: _Broker, context: RequestContext, message: Any) -> Steps[dict[str, Any]]:
    """Return the ids, COORDINATOR_LOAD_IN_PROGRESS while a partition loads, or INVALID_REGULAR_EXPRESSION."""
    try:
        matches = _pattern(optional(message, "transactional_id_pattern", ""))
        known = list(broker.transactions.transactions())
    except KafkaError as error:
        return {"error_code": error.code, "unknown_state_filters": [], "transaction_states": []}
    producer_ids, duration_ms = set(message.producer_id_filters), optional(message, "duration_filter", -1)
    states, now_ms = set(message.state_filters), broker.runtime.clock.now_ms()

    def is_wanted(each: TransactionMetadata) -> bool:
        return (
            (not producer_ids or each.producer_id in producer_ids)
            and (not states or each.state.text in states)
            and (duration_ms < 0 or now_ms - each.start_ms > duration_ms)
            and (matches is None or matches.fullmatch(each.transactional_id) is not None)
        )

    wanted = []
    for each in known:
        if is_wanted(each):
            wanted.append(each)
        yield 1
    ids = (each.transactional_id for each in wanted)
    denied = yield from context.denied(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids, quietly=True)
    return {
        "unknown_state_filters": sorted(states - _STATES),
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state.text,
            }
            for each in wanted
            if each.transactional_id not in denied
        ],
    }


def _pattern(text: str) -> Any:
    """Return the compiled pattern; None for an empty one. Raises `KafkaError` INVALID_REGULAR_EXPRESSION."""
    if not text:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        raise KafkaError(ErrorCode.invalid_regular_expression, f"{text!r}: {error}") from None
