"""Fetching from partition leaders and other replicas: positions, their validation, and records.

`offset_fetcher` finds initial positions, `position_validator` compares them with a new leader's log (KIP-320),
`fetcher` fetches in the sessions of `fetch_session_handler` (KIP-227). All of them store into `SubscriptionState`.
"""
