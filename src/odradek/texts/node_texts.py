"""Nodes of the metadata tree in words: what a node is for, its owner, and its data without secrets."""

import base64
import json
import re
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigType
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import BrokerNode
from odradek.security.quotas import USER_KEYS

PERSISTENT: Final = 0
"""The owner of a node that no session owns."""
HIDDEN: Final = "(hidden)"
_MOST_LEVELS: Final = 100
"""Limit of JSON within JSON that is indented, whose size grows with its square."""
_LEVELS: Final = dict(zip(b"[{]}", (1, 1, -1, -1), strict=True))
_SENTENCES: Final = (
    ("/", "The root of the cluster's metadata.", ""),
    ("/brokers", "The brokers and topics of the cluster.", ""),
    ("/brokers/ids", "A child for each live broker; the controller watches them.", ""),
    ("/brokers/ids/(.+)", "Broker {0} is alive: it wrote this node at its start.", "It is reached at {addresses}."),
    ("/brokers/topics", "A child for each topic.", ""),
    ("/brokers/topics/([^/]+)", "The replicas of topic {0}, by partition; the controller writes them.", ""),
    ("/brokers/topics/([^/]+)/partitions", "A child for each partition of topic {0}.", ""),
    ("/brokers/topics/([^/]+)/partitions/([0-9]+)", "The parent of the state of partition {1} of topic {0}.", ""),
    ("/brokers/topics/([^/]+)/partitions/([0-9]+)/state",
     "The leader and the in-sync replicas of partition {1} of topic {0}; the controller writes them.",
     "The leader is broker {leader} (-1: none) in leader epoch {leader_epoch}; in sync are {isr}."),
    ("/brokers/registrations(?:/.+)?", "The last registrations of brokers, also of those that are away.", ""),
    ("/brokers/log_dirs(?:/.+)?", "The data directories of each broker.", ""),
    ("/controller", "The elected controller, which every broker watches.", "Broker {brokerid} is the controller."),
    ("/controller_epoch", "The number of controllers that were elected; requests of earlier ones are refused.", ""),
    ("/cluster/id", "The cluster's id, from the first broker that started.", ""),
    ("/cluster/secret", "Random bytes that only those who may read this node know; they are not shown.", ""),
    ("/config/topics/(.+)", "The configuration of topic {0}; brokers with its replicas watch it.", ""),
    ("/config/brokers/<default>", "The dynamic configuration of all brokers.", ""),
    ("/config/brokers/(.+)", "The dynamic configuration of broker {0}.", ""),
    ("/config/groups/(.+)", "The configuration of group {0}.", ""),
    ("/config/users/([^/]+)", "The SCRAM credentials, which are not shown, and the quotas of user {0}.", ""),
    ("/config/users/([^/]+)/clients/(.+)", "The quotas of client id {1} of user {0}.", ""),
    ("/config/(?:clients|ips)/(.+)", "The quotas of {0}.", ""),
    ("/config(?:/[a-z]+)?", "Configurations that take effect without a restart.", ""),
    ("/kafka-acl(?:-extended/prefixed)?/([^/]+)/(.+)", "The ACLs of {0} {1}.", ""),
    ("/kafka-acl(?:-extended)?(?:/.+)?", "ACLs by type of resource; those below “prefixed” are for prefixes.", ""),
    ("/kafka-acl(?:-extended)?-changes(?:/.+)?", "Notifications: brokers read the ACLs that these name.", ""),
    ("/admin/reassign_partitions", "Partitions that get other replicas; the controller deletes it when done.", ""),
    ("/admin/preferred_replica_election", "Partitions for which the controller elects the preferred leaders.", ""),
    ("/admin/delete_topics(?:/.+)?", "Topics to delete: the controller deletes each request with its topic.", ""),
    ("/admin/deleted_replicas(?:/.+)?", "Replicas that an offline broker has to delete when it is back.", ""),
    ("/admin", "Requests to the controller, which tools write.", ""),
    ("/consumers", "A child for each consumer group of generation 1.", ""),
    ("/consumers/([^/]+)/ids/(.+)", "Consumer {1} of group {0} is alive; all consumers of the group watch it.", ""),
    ("/consumers/([^/]+)/owners/([^/]+)/([0-9]+)", "The consumer of group {0} that reads partition {2} of {1}.", ""),
    ("/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)", "The next offset that group {0} reads of {1}-{2}.", ""),
    ("/consumers/([^/]+)(?:/.+)?", "A part of group {0} of generation 1.", ""),
    ("/feature", "The finalized levels of features.", ""),
    ("/latest_producer_id_block", "The last block of producer ids that a broker has taken.", ""),
    ("/log_dir_event_notification(?:/.+)?", "A broker's log has failed or is back: other leaders are elected.", ""),
    ("/isr_change_notification|/brokers/seqid|/config/changes", "An empty node, for Kafka's tools.", ""),
)  # fmt: skip
"""Paths, what each is for, and what its value says."""


def sentence(path: str, data: bytes) -> str:
    """Explain a node; "" for an unknown path."""
    for pattern, purpose, meaning in _SENTENCES:
        if (match := re.fullmatch(pattern, path)) is not None:
            explained = purpose.format(*match.groups())
            with suppress(KeyError, BrokenNodeError):
                fields = _fields(data)
                if "{addresses}" in meaning:
                    fields["addresses"] = ", ".join(map(str, BrokerNode.decode(path, data).endpoints))
                explained += f" {meaning.format_map(fields)}".rstrip()
            return explained
    return ""


def owner(session: int) -> str:
    return "persistent" if session == PERSISTENT else f"ephemeral, of session 0x{session:x}"


def written_ms(data: bytes) -> int | None:
    """Return the field `timestamp` of a JSON value; None without one."""
    found = str(_fields(data).get("timestamp", ""))
    return int(found) if found.isascii() and found.isdigit() and len(found) < 16 else None


def text(data: bytes) -> str:
    """Return printable data as text, other data as base64."""
    try:
        found = data.decode()
    except UnicodeDecodeError:
        found = ""
    if all(character.isprintable() or character in "\n\t" for character in found) and (found or not data):
        return found
    return f"base64 {base64.b64encode(data).decode()}"


def pretty(data: bytes) -> str:
    """Return JSON indented, other data and JSON of more than `_MOST_LEVELS` as `text`."""
    if max(accumulate(_LEVELS.get(byte, 0) for byte in data), default=0) > _MOST_LEVELS:
        return text(data)
    try:
        return json.dumps(json.loads(data), indent=2)
    except (ValueError, RecursionError):
        return text(data)


def pretty_without_secrets(path: str, data: bytes) -> str:
    """Return data as `pretty` does, without the cluster's secret, the credentials of users and passwords of brokers."""
    if path == "/cluster/secret":
        return HIDDEN
    if not data or not path.startswith(("/config/users/", "/config/brokers/")):
        return pretty(data)
    value = _fields(data)
    config = value.get("config")
    if not isinstance(config, dict):
        return HIDDEN
    is_user = path.startswith("/config/users/")
    shown = {
        key: each if (key in USER_KEYS if is_user else _is_harmless(key)) else HIDDEN for key, each in config.items()
    }
    return pretty(json.dumps({"version": value.get("version"), "config": shown}).encode())


def _is_harmless(key: str) -> bool:
    """Return whether a broker's key is known and no password: a secret may be behind a misspelt key."""
    known = BrokerConfig.definitions().get(key)
    return known is not None and known.type is not ConfigType.PASSWORD


def _fields(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
