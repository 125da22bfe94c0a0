"""The handlers of requests, one file per API: `handle(broker, context, message)` gives the response or a coroutine.

`message` is kio's request of the version that the client sent; the response is a dict for `protocol.messages`. A
handler may assume that the request as a whole is permitted, and nothing of the resources that it names: it authorizes
those by `context.denied` or `context.allows`, and the response refuses the denied ones or leaves them out.
`refuse(message, error)` makes the response to a request that is refused as a whole, if that needs more than an error
code. A handler raises `KafkaError` only to close the connection; other errors go into the response.

The type of `broker` says what the handler may touch: one protocol of `broker.parts`, or a class `_Broker` that joins
several. Helpers take single parts where they can (`broker.image`). A new API is also listed in `serving.apis`,
`serving.api_permissions` and `tests/broker/served_handlers.py`.

Raw handlers (produce, fetch, metadata, api_versions) get and return frames, decode them, and call
`context.check_request` themselves (api_versions needs no permission). `produce_fast_path` skips the decoding of similar
Produce requests, and `produce_rejections` counts rejected batches.
"""
