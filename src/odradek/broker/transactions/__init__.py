"""The transaction coordinator of a broker: its topic, configuration and log lines, and the markers that it sends.

The state machine is in `broker.transactions.machine`, the runtime in `broker.coordinators`.
"""
