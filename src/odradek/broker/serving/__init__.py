"""The path of a request from the socket to its handler and back, and what handlers share.

`server` has the listeners. `connection_quotas` limits how many connections it accepts, and how fast; the limits of each
connection are `wire.connection_group.ConnectionLimits`. `dispatch` finds the handler in `apis`, calls it with the
request's `context`, and returns the response, framed by `responses`.

Before a handler decides anything, `admission` may delay the request (quotas), hold it (asynchronous check), and refuse
it as a whole (that check, or the permissions `request` of `api_permissions`). It takes no refused resource out of a
request: for every API, the handler authorizes those that a request names (permissions `items`), by the `context`.

Delayed requests wait in the `purgatory`. `answer_cache` keeps encoded responses, `fetch_sessions` the partitions of
incremental fetches. `request_metrics` counts and times requests, `response_errors` finds error codes in responses, and
`error_responses` makes the responses to refused requests.
"""
