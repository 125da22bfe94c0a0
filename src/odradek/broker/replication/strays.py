"""Logs that nobody asks for any more."""

import logging
from collections.abc import Iterable

from odradek.metadata.image import ClusterImage
from odradek.model import TopicPartition

_log = logging.getLogger("odradek.broker")


def report_strays(logs: Iterable[TopicPartition], image: ClusterImage) -> None:
    """Name the logs of topics that the image does not know, once it is known."""
    strays = [str(each) for each in logs if each.topic not in image.topics]
    if strays:
        some = ", ".join(strays[:10])
        _log.warning("%d logs are of topics that are not in the metadata, and are left alone: %s", len(strays), some)
