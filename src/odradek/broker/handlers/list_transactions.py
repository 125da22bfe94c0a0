"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Versions: 1 filter by duration (KIP-994), 2 filter by a pattern of RE2 (KIP-1152). Unknown states in the filter are
returned as such; ids that the client may not describe are left out.
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.consumer.subscriptions import compile_regex
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.transaction import TransactionMetadata, TransactionState
from odradek.broker.turns import TURN, Steps
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest as Message

_STATES = {state.text for state in TransactionState}
_MOST_STEPS: Final = 1 << 24
"""The limit of a pattern's instructions times an id's bytes: a match takes 80 ms at the most, and holds the loop."""
_STEPS_PER_TURN: Final = 1 << 20
"""They take 5 ms at the most."""


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return the ids, COORDINATOR_LOAD_IN_PROGRESS while a partition loads, or INVALID_REGULAR_EXPRESSION."""
    try:
        text = optional(message, "transactional_id_pattern", "")
        pattern = compile_regex(text, "TransactionalIdPattern") if text else None
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
        )

    wanted = []
    for each in known:
        yield 1
        if is_wanted(each):
            if pattern is not None:
                steps = pattern.programsize * len(each.transactional_id.encode())
                if steps > _MOST_STEPS:
                    code = ErrorCode.invalid_regular_expression
                    return {"error_code": code, "unknown_state_filters": [], "transaction_states": []}
                yield steps * TURN // _STEPS_PER_TURN
                if pattern.fullmatch(each.transactional_id) is None:
                    continue
            wanted.append(each)
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
