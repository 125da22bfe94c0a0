"""Our own clients, with the two calls that the others have in `existing_clients`."""

import asyncio
from collections.abc import Sequence

from conformance.interop.existing_clients import DEADLINE_S, Client, Message
from odradek.clients import Consumer, Producer
from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.model import TopicPartition


class Odradek(Client):
    """`odradek.clients`, on an event loop of its own."""

    name = "odradek"

    def write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        asyncio.run(self._write(servers, topic, messages, codec))

    async def _write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        async with Producer(servers, compression_type=codec, linger_ms=20) as producer:  # type: ignore[arg-type]
            futures = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                    headers=message.headers,
                )
                for message in messages
            ]
            await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)

    def read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        return asyncio.run(self._read(servers, topic, partitions, count))

    async def _read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        found: list[ConsumerRecord] = []
        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            async with asyncio.timeout(DEADLINE_S):
                async for record in consumer:
                    found.append(record)
                    if len(found) == count:
                        break
        return [
            Message(
                partition=record.partition,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
                timestamp_ms=record.timestamp,
            )
            for record in sorted(found, key=lambda record: (record.partition, record.offset))
        ]
