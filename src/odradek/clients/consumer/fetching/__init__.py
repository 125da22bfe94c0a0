"""Fetch positions and records of a consumer, requested from partition leaders and other replicas.

All store into `SubscriptionState`, which checks the CRC of each batch; `fetch_collector` takes records from it.
"""
