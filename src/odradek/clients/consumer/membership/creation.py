"""Creates the group membership of a consumer for its `group.protocol`."""

from collections.abc import Callable, Iterable

from odradek.assignors import Assignor
from odradek.clients.cluster import Cluster
from odradek.clients.consumer.membership.classic_requests import ClassicGroupRequests, create_assignors
from odradek.clients.consumer.membership.consumer_requests import ConsumerGroupRequests
from odradek.clients.consumer.membership.interface import GroupRequests
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.model import ConfigurationError

_DEFAULT_STRATEGIES = ("range", "cooperative-sticky")


def create_group_requests(
    cluster: Cluster,
    settings: ConsumerSettings,
    group_id: str,
    strategy: str | Assignor | Iterable[str | Assignor] | None,
    on_change: Callable[[], None],
) -> GroupRequests:
    """Create the `GroupRequests` for `group.protocol`.

    Raises `ConfigurationError` for an unknown assignor, and for any `strategy` with protocol `consumer`.
    """
    if settings.group_protocol == "classic":
        assignors = create_assignors(_DEFAULT_STRATEGIES if strategy is None else strategy)
        return ClassicGroupRequests(cluster, settings, group_id, assignors, on_change)
    if strategy is not None:
        raise ConfigurationError(
            "partition_assignment_strategy is for group_protocol classic; the coordinator assigns, by "
            "group_remote_assignor or its own choice"
        )
    return ConsumerGroupRequests(cluster, settings, group_id)
