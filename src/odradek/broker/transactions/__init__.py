"""The transaction coordinator of a broker, the markers that it sends and writes, and the verification of appends.

`broker.coordinators` runs the state machine of `broker.transactions.machine`.
"""
