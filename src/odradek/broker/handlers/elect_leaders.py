"""ElectLeaders: elect the preferred replica, or any live replica where there is no leader (KIP-183, KIP-460).

Only the controller serves it. The response is sent when the elections are in the metadata tree and in this broker's
image; the request's timeout limits the wait for the image. Null partitions stand for all that need an election; only
these are in the response. Version 1: unclean elections, which may lose records, and an error of the request.
"""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from odradek.broker.controller import jobs
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine.elections import ElectionType
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps, cooperatively, in_turns, light
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest as Message

Results = dict[TopicPartition, KafkaError | None]


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per partition. An error of the request is in all, as version 0 has no other field for it."""
    del context
    wanted: list[TopicPartition] | None = None
    if message.topic_partitions is not None:
        named = (TopicPartition(each.topic, number) for each in message.topic_partitions for number in each.partitions)
        wanted = list(dict.fromkeys([each async for each in cooperatively(named, light)]))
    try:
        results = await _elect(broker, wanted, optional(message, "election_type", 0), message.timeout)
    except KafkaError as error:
        return await in_turns(_answer(dict.fromkeys(wanted or (), error), error.code))
    return await in_turns(_answer(results))


async def _elect(
    broker: BrokerParts, wanted: list[TopicPartition] | None, election_type: int, timeout: timedelta
) -> Results:
    if election_type not in ElectionType._value2member_map_:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {election_type}")
    controller, loop = broker.controller, asyncio.get_running_loop()
    held: asyncio.Future[Results] = loop.create_future()

    async def hold(epoch: ControllerEpoch) -> Results:
        results = await jobs.elect_leaders(epoch, wanted, ElectionType(election_type))
        if not held.done():
            held.set_result(results)
        return results

    deadline = loop.time() + timeout.total_seconds()
    seen = loop.create_task(controller.do(hold))
    try:
        await asyncio.wait((seen, held), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((seen,), timeout=max(deadline - loop.time(), 0))
        return seen.result() if seen.done() else held.result()
    finally:
        seen.cancel()


def _answer(results: Results, error_code: ErrorCode = ErrorCode.none) -> Steps[dict[str, object]]:
    topics: dict[str, list[dict[str, object]]] = {}
    for key, error in results.items():
        topics.setdefault(key.topic, []).append(
            {
                "partition_id": key.partition,
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else error.message,
            }
        )
        yield 1
    listed = [{"topic": name, "partition_result": partitions} for name, partitions in topics.items()]
    return {"error_code": error_code, "replica_election_results": listed}
