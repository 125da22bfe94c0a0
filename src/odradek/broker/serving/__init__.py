"""The way of a request from the socket to its handler and back, and what handlers share.

`server` listens, and lets clients in as far as `connection_quotas` allows. `dispatch` finds the handler among `apis`,
passes the request through `admission` (authorizer, quotas, asynchronous checks; `api_permissions` is the table), gives
the handler the request's `context`, and sends what it gives; `responses` frames it. What can't be answered yet waits in
the `purgatory`; `answer_cache` and `fetch_sessions` have what requests need not say, or be told, again. `metering`
counts and times requests, if somebody wants to know, and `response_errors` finds the errors in their answers.
"""
