"""Warns of records that are older than the retention of their topic: brokers delete them soon after the write."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.model import OdradekError

RECENT_MS: Final = 3_600_000
"""Records that are not older than this are not compared: a retention below one hour is rare, and a request costs."""

_log = logging.getLogger("odradek.spark")


_retention_ms: dict[tuple[str, str], int] = {}
"""By bootstrap servers and topic, requested once in a process; -1 also after the warning."""


async def check_retention(settings: Mapping[str, Any], topic: str, oldest_ms: int, now_ms: int) -> None:
    """Log a warning, once per topic and process, if records of that timestamp are beyond the topic's retention.

    `settings` are the keyword arguments of an `Admin`.
    """
    if now_ms - oldest_ms <= RECENT_MS:
        return
    key = settings["bootstrap_servers"], topic
    if key not in _retention_ms:
        _retention_ms[key] = await _requested(settings, topic)
    if 0 <= _retention_ms[key] < now_ms - oldest_ms:
        _log.warning(
            "Topic %s gets records with timestamps older than its retention.ms=%d, which its brokers soon delete: set "
            "its retention.ms to -1, or write without includeTimestamp",
            topic,
            _retention_ms[key],
        )
        _retention_ms[key] = -1


async def _requested(settings: Mapping[str, Any], topic: str) -> int:
    resource = ConfigResource(type=ConfigResourceType.TOPIC, name=topic)
    try:
        async with Admin(**settings) as admin:
            entries = (await admin.describe_configs([resource]))[resource]
    except OdradekError as error:
        _log.debug("The retention of topic %s is unknown: %s", topic, error)
        return -1
    return deleting_after_ms({entry.name: entry.value for entry in entries})


def deleting_after_ms(configs: Mapping[str, str | None]) -> int:
    """Return the age in ms at which a topic's records are deleted; -1 if none are by the timestamp of their writer."""
    if "delete" not in str(configs.get("cleanup.policy")) or configs.get("message.timestamp.type") == "LogAppendTime":
        return -1
    return int(configs.get("retention.ms") or -1)
