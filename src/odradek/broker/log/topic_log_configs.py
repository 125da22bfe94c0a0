"""The configuration of a topic's logs: the broker's, overridden by the topic's."""

import logging
from collections.abc import Hashable
from typing import Final

from msgspec.structs import replace

from odradek.broker.log.log_config import LogConfig
from odradek.config import BrokerConfig, topic_config
from odradek.metadata.image import TopicImage
from odradek.model import ConfigurationError

_log = logging.getLogger("odradek.broker")
_MOST_CACHED: Final = 100


class TopicLogConfigs:
    """Makes log configurations, and caches some: most topics of a cluster have the same one."""

    def __init__(self) -> None:
        self._broker: BrokerConfig | None = None
        self._cache: dict[Hashable, LogConfig] = {}

    def of(self, name: str, topic: TopicImage | None, broker: BrokerConfig) -> LogConfig:
        """Return the configuration of a topic's logs. `topic` is None if the image does not have it.

        If the topic's configuration is unknown or invalid, `cleanup.policy` is empty, as the topic's retention may be
        longer than the broker's.
        """
        if self._broker is not broker or len(self._cache) > _MOST_CACHED:
            self._broker, self._cache = broker, {}
        is_known = topic is not None and topic.is_config_known
        key: Hashable = is_known, frozenset(() if topic is None else topic.config.items())
        config = self._cache.get(key) or self._cache.get((name, key))
        if config is None:
            own = topic_config(broker, {})
            try:
                own = own if topic is None else topic_config(broker, topic.config)
            except ConfigurationError as error:
                _log.error("the configuration of topic %s is ignored, and nothing of it is deleted: %s", name, error)
                is_known, key = False, (name, key)
            config = LogConfig.of(broker, own)
            if not is_known:
                config = replace(config, cleanup_policy=())
            self._cache[key] = config
        return config
