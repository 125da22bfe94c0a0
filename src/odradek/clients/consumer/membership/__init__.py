"""Membership of a consumer by the classic or the consumer protocol: pure state machines, and their requests."""
