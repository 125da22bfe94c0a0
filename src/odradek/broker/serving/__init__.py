"""The path of a request from the socket to its handler and back, and the state that handlers share.

`server` has the listeners; the limits of each connection are `wire.connection_group.ConnectionLimits`. `dispatch` finds
the handler in `apis`, applies `security.admission`, calls the handler with the request's context (`security.context`),
and returns the response, framed by `responses`; `throttle_times` adds the throttle time.

Delayed operations wait in the `purgatory`. `response_cache` keeps encoded responses, `fetch_sessions` the partitions of
incremental fetches. `request_metrics` counts and times requests, `response_errors` finds error codes in responses, and
`error_responses` makes the responses to refused requests.
"""
