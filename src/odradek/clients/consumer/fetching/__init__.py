"""Fetch positions and records of a consumer, requested from partition leaders and other replicas.

`offset_fetcher` finds initial positions, `position_validator` compares positions with a new leader's log (KIP-320),
`fetcher` fetches, in fetch sessions (`protocol.messages.fetch_session`) and limited memory. All store into
`SubscriptionState`, which checks the CRC of each fetched batch; from it `fetch_collector` takes records for `poll`.
"""
