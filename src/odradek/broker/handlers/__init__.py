"""One API a file, named as the API: `handle(broker, context, message)` gives the response, or a coroutine of it.

`message` is kio's request of the version that came, the response a dict for `protocol.messages`. A handler raises
`KafkaError` only when the connection is of no more use; errors that Kafka's response has a place for go there. Those
that `serving.apis` calls raw (produce, fetch, metadata) get the frame instead, and answer with frames. Only Produce
needs more than a file: its short road is `produce_shortcut`, and what it takes of nobody `produce_rejections` counts.
"""
