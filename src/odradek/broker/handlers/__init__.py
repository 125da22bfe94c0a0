"""The handlers of requests, one file per API: `handle(broker, context, message)` gives the response or a coroutine.

`message` is kio's request of the version that the client sent; the response is a dict for `protocol.messages`. A new
API is also listed in `serving.apis` and `serving.api_permissions`. A handler raises `KafkaError` only to close the
connection; other errors go into the response. Raw handlers (produce, fetch, metadata) get and return frames.
`produce_fast_path` skips the decoding of similar Produce requests, and `produce_rejections` counts rejected batches.
"""
