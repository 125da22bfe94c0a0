"""The quotas of clients, in force.

`rates` has windows and token buckets. `client_quotas` throttles requests and mutes connections; `connection_quotas`
limits the connections that a listener accepts.
"""
