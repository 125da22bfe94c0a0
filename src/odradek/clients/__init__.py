"""Clients of any Kafka cluster, in asyncio: thin, without a thread, with nothing between the caller and the wire.

    async with Producer("localhost:9092") as producer:
        await producer.send("greetings", b"hello")
    async with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        async for record in consumer: ...

`reader` and `offsets` are the pieces below, for those who keep their own offsets. Names are imported when first used.
"""
