"""WriteTxnMarkers: append a transaction's commit or abort marker to its partitions (KIP-98).

Coordinators send the request. Administrators send it to end a transaction that no coordinator knows (KIP-664).
Version 2: the marker's transaction version (KIP-1228), which decides which producer epochs are valid
(`broker.log.producers.producer_state`).
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.transaction_markers import Marker, Results
from odradek.broker.turns import Steps, in_turns
from odradek.model import TopicPartition
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker
    from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one error per producer and partition, when all markers are committed or have failed.

    As in Kafka, markers of one producer for one partition share one error.
    """
    del context
    results = await broker.transactions.marker_writer.write(map(_marker, message.markers))
    return await in_turns(_answer(results))


def _marker(marker: "WritableTxnMarker") -> Marker:
    return Marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=bool(marker.transaction_result),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=optional(marker, "transaction_version", 0),
        partitions=_partitions(marker),
    )


def _partitions(marker: "WritableTxnMarker") -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]


def _answer(results: Results) -> Steps[dict[str, object]]:
    markers = []
    for producer_id, errors in results.items():
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, number), error in errors.items():
            topics.setdefault(topic, []).append({"partition_index": number, "error_code": error})
            yield 1
        named = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        markers.append({"producer_id": producer_id, "topics": named})
        yield 1
    return {"markers": markers}
