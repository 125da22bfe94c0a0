"""The path of a request from the socket to its handler and back, and the state that handlers share.

`server` has the listeners. `connection_quotas` limits how many connections it accepts, and how fast; the limits of each
connection are `wire.connection_group.ConnectionLimits`. `dispatch` finds the handler in `apis`, calls it with the
request's `context`, and returns the response, framed by `responses`.

Before the handler runs, `admission` may delay the request (quotas), hold it (asynchronous check), or refuse it as a
whole (that check, or the permissions `request` of `api_permissions`). The handler then authorizes each resource that
the request names (permissions `items`) by the `context`.

Delayed operations wait in the `purgatory`. `response_cache` keeps encoded responses, `fetch_sessions` the partitions of
incremental fetches. `request_metrics` counts and times requests, `response_errors` finds error codes in responses, and
`error_responses` makes the responses to refused requests.
"""
