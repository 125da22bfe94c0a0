"""Settings in environment variables, as the container images of Apache Kafka, Confluent and Bitnami take them.

| variable | key |
|---|---|
| `KAFKA_LOG_RETENTION_MS`, `KAFKA_CFG_LOG_RETENTION_MS` (Bitnami) | `log.retention.ms` |
| `KAFKA_A__B`, `KAFKA_A___B` | `a_b`, `a-b` |

Keys of KRaft are translated where a compose file for one broker needs it, and refused where each of its brokers would
become a cluster of its own. Unknown names are logged and have no effect, as in Kafka, because other programs use the
prefix; those that begin like a key of security are refused. The links that Kubernetes sets for a Service `kafka-…`,
such as `KAFKA_SSL_SERVICE_HOST`, are no settings.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import parse_listener
from odradek.config.unimplemented_keys import IGNORED_KEYS, divided, unimplemented_keys
from odradek.model import ConfigurationError

_PREFIXES: Final = ("KAFKA_CFG_", "KAFKA_")
_UNDERSCORES: Final = {"_": ".", "__": "_", "___": "-"}
_CLUSTER_IDS: Final = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")
_PROTECTION: Final = ("authorizer.", "listener.", "sasl.", "security.", "ssl.", "super.", "zookeeper.")
"""Prefixes of keys that protect a cluster: an unknown one is refused as in a file."""
_SERVICE_LINK: Final = re.compile(
    r"[^=]*_(SERVICE_HOST|SERVICE_PORT(_[^=]*)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*|[^=]*_PORT=\w+://.*",
    re.DOTALL,
)
"""NAME=VALUE of a link."""
_QUORUM: Final = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


class EnvironmentSettings(Struct, frozen=True, kw_only=True):
    """Keys with their texts, and lines for the log.

    `derived` has keys that no variable names, but another one gives a value: a file's own value of them is stronger.
    """

    properties: Mapping[str, str]
    derived: Mapping[str, str]
    notes: tuple[str, ...]


def read_environment(variables: Mapping[str, str], *, metadata: str | None = None) -> EnvironmentSettings:
    """Return the settings in `variables`; `metadata` is the URL of the command line, which is stronger.

    Raises `ConfigurationError` for settings that contradict each other or need KRaft.
    """
    properties, names = _keys(variables)
    notes: list[str] = []
    derived: dict[str, str] = {}
    _name_the_broker(properties, derived, notes)
    _quorum(properties, metadata, notes)
    _listeners(properties, derived, notes)
    if ids := [name for name in _CLUSTER_IDS if variables.get(name)]:
        notes.append(f"{ids[0]} has no effect: the metadata tree has the cluster's id")
    meant, others = divided(properties, BrokerConfig.definitions())
    kafkas = (*unimplemented_keys(), *IGNORED_KEYS)
    unknown = {key for key in others if key not in kafkas and not key.startswith(_PROTECTION)}
    if unknown:
        notes.append(f"no keys of a broker, ignored: {', '.join(sorted(names[key] for key in unknown))}")
    known = meant | {key: text for key, text in others.items() if key not in unknown}
    return EnvironmentSettings(properties=known, derived=derived, notes=tuple(notes))


def _keys(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts and the variables' names by key. Empty variables count as unset."""
    properties, names = dict[str, str](), dict[str, str]()
    for name, text in sorted(variables.items()):
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None or not text.strip() or name in _CLUSTER_IDS or _SERVICE_LINK.fullmatch(f"{name}={text}"):
            continue
        key = re.sub("_{1,3}", lambda match: _UNDERSCORES[match[0]], name.removeprefix(prefix).lower())
        if properties.setdefault(key, text) != text:
            raise ConfigurationError(f"{names[key]} and {name} are the same key with different values")
        names[key] = name
    return properties, names


def _name_the_broker(properties: dict[str, str], derived: dict[str, str], notes: list[str]) -> None:
    """Turn `node.id`, `process.roles` and `log.dir` into what this broker has."""
    roles = properties.pop("process.roles", "broker")
    if "broker" not in roles:
        raise ConfigurationError(
            f"process.roles is {roles}: brokers elect a controller among themselves; remove this container"
        )
    if node_id := properties.pop("node.id", None):
        if properties.setdefault("broker.id", node_id) != node_id:
            raise ConfigurationError(f"node.id is {node_id}, and broker.id is {properties['broker.id']}; set one")
        notes.append(f"node.id is used as broker.id: {node_id}")
    if directory := properties.pop("log.dir", None):
        derived["log.dirs"] = directory


def _quorum(properties: dict[str, str], metadata: str | None, notes: list[str]) -> None:
    """Remove the keys of a KRaft quorum; one of several members needs a metadata tree that they share."""
    url = metadata or properties.get("zookeeper.connect")
    for key in _QUORUM:
        members = [each for each in properties.pop(key, "").split(",") if each.strip()]
        if url is None and len(members) > 1:
            raise ConfigurationError(
                f"{key} has {len(members)} members, and there is no KRaft here: set KAFKA_ZOOKEEPER_CONNECT to the "
                "ZooKeeper that the brokers share, or --metadata sqlite:///PATH on a volume of one machine"
            )
        if members:
            notes.append(f"{key} has no effect: metadata is in {url or 'a SQLite file in the data directory'}")


def _listeners(properties: dict[str, str], derived: dict[str, str], notes: list[str]) -> None:
    """Remove the listeners of KRaft controllers; listen on every interface for what is advertised alone."""
    controllers = {each.strip().upper() for each in properties.pop("controller.listener.names", "").split(",")} - {""}
    for key in ("listeners", "advertised.listeners"):
        every = [each for each in properties.get(key, "").split(",") if each.strip()]
        kept = [each for each in every if parse_listener(each).name not in controllers]
        if len(kept) < len(every):
            properties[key] = ",".join(kept)
            notes.append(f"{key}: without {', '.join(sorted(controllers))}, as controllers have no listener here")
    if "listeners" not in properties and (advertised := properties.get("advertised.listeners")):
        addresses = [parse_listener(each) for each in advertised.split(",") if each.strip()]
        derived["listeners"] = ",".join(f"{each.name}://:{each.port}" for each in addresses)
