"""Warns of records that are older than the retention of their topic: brokers delete them soon after the write."""

import functools
import logging
from collections.abc import Mapping
from typing import Any, Final

from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.model import OdradekError

RECENT_MS: Final = 3_600_000
"""Records that are not older than this are not compared: a retention below one hour is rare, and a request costs."""

_log = logging.getLogger("odradek.spark")


class RetentionCheck:
    """Compares a task's records with the retention of their topics, of which it requests each once."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        """The keyword arguments of an `Admin`."""
        self._retention_ms: dict[str, int] = {}

    async def check(self, topic: str, oldest_ms: int, now_ms: int) -> None:
        """Log a warning, once per topic and process, if records of that timestamp are beyond the retention."""
        if now_ms - oldest_ms <= RECENT_MS:
            return
        if topic not in self._retention_ms:
            self._retention_ms[topic] = await self._requested(topic)
        retention_ms = self._retention_ms[topic]
        if 0 <= retention_ms < now_ms - oldest_ms:
            _warn_once(topic, retention_ms)

    async def _requested(self, topic: str) -> int:
        resource = ConfigResource(type=ConfigResourceType.TOPIC, name=topic)
        try:
            async with Admin(**self._settings) as admin:
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


@functools.cache
def _warn_once(topic: str, retention_ms: int) -> None:
    _log.warning(
        "Topic %s gets records with timestamps older than its retention.ms=%d, which its brokers soon delete: set its "
        "retention.ms to -1, or write without includeTimestamp",
        topic,
        retention_ms,
    )
