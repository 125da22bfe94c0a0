"""The transaction coordinator of a broker: its topic, configuration and log lines, and the markers that it sends.

The state machine is in `odradek.transactions`, the runtime in `broker.coordinators`.
"""
