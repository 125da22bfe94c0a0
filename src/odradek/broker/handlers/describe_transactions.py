"""DescribeTransactions: state, producer and partitions of transactional ids that this broker coordinates (KIP-664).

Partitions of topics that the client may not describe are left out.
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.messages import DescribeTransactionRequest
from odradek.broker.transactions.machine.transaction import TransactionMetadata
from odradek.broker.turns import cooperatively, in_turns
from odradek.model import KafkaError
from odradek.model.names import numbers_by_topic
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one description per id, also for a repeated one; TRANSACTIONAL_ID_NOT_FOUND for an unknown one."""
    return {
        "transaction_states": [
            await _describe(broker, context, transactional_id)
            async for transactional_id in cooperatively(dict.fromkeys(message.transactional_ids))
        ]
    }


async def _describe(broker: BrokerParts, context: RequestContext, transactional_id: str) -> dict[str, object]:
    try:
        context.check(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        found: TransactionMetadata = await broker.transactions.submit(transactional_id, DescribeTransactionRequest())
    except KafkaError as error:
        return {
            "error_code": error.code,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": [],
        }
    topics = numbers_by_topic(found.partitions)
    denied = await in_turns(context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, topics, quietly=True))
    return {
        "transactional_id": transactional_id,
        "transaction_state": found.state.text,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items() if topic not in denied],
    }
