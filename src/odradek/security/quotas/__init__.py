"""Quotas of clients: which quota applies to a client (`entities`), and rates and throttle times (`rates`)."""

from odradek.security.quotas.entities import (
    DEFAULT,
    IP_KEYS,
    USER_KEYS,
    QuotaEntity,
    applicable,
    check_entity,
    check_key,
    ip_limit,
    limits_by_key,
    only_quotas,
    quota_text,
)
from odradek.security.quotas.rates import Rate, TokenBucket

__all__ = [
    "DEFAULT",
    "IP_KEYS",
    "USER_KEYS",
    "QuotaEntity",
    "Rate",
    "TokenBucket",
    "applicable",
    "check_entity",
    "check_key",
    "ip_limit",
    "limits_by_key",
    "only_quotas",
    "quota_text",
]
