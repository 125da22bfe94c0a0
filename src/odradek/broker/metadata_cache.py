"""The image of the cluster and the configuration that a broker uses at present."""

from odradek.config import BrokerConfig
from odradek.metadata.image import ClusterImage


class MetadataCache:
    """The present image and configuration; the broker replaces both as wholes."""

    def __init__(self, config: BrokerConfig) -> None:
        self.broker_id = config.broker_id
        self.config = config
        self.image = ClusterImage()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 while it is not registered, as far as it knows."""
        registered = self.image.brokers.get(self.broker_id)
        return -1 if registered is None else registered.epoch
