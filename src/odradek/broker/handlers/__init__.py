"""The request handlers, one module per API: `handle(broker, context, message)` returns the response.

`message` is the request, decoded by kio in the client's version, and typed as the last version: fields that others lack
are read by `optional`. The response is a dict for `protocol.messages`, a coroutine that returns one, or a `WhenDone`.
The request as a whole has been authorized. The handler authorizes the resources that it names, by `context.denied` or
`context.allows`; the response reports the denied ones or leaves them out. A handler raises `KafkaError` only to close
the connection; other errors go into the response. A new API is also a row of `broker.apis`.

Raw handlers (produce, fetch, metadata, api_versions) take the request's frame, decode it, call
`context.check_request`, and return the response's frame.
"""
