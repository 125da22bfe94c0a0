"""The path of a request from the socket to its handler and back, and what handlers share.

`server` accepts connections within `connection_quotas`. `dispatch` finds the handler in `apis`, passes the request
through `admission` (authorizer, quotas, asynchronous checks; `api_permissions` is the table), calls the handler with
the request's `context`, and sends the response, framed by `responses`. Delayed requests wait in the `purgatory`.
`answer_cache` keeps encoded responses, `fetch_sessions` the partitions of incremental fetches. `metering` counts and
times requests, and `response_errors` finds error codes in responses.
"""
