"""The APIs by name, and the versions that their schemas cover."""

from enum import IntEnum
from functools import cache

from kio.schema.index import api_key_map, schema_name_map

ApiKey = IntEnum("ApiKey", {name.upper(): key for key, name in api_key_map.items()})  # type: ignore[misc]
ApiKey.__doc__ = "Kafka's API keys by Kafka's names, as `ApiKey.PRODUCE`."


@cache
def schema_versions(api_key: int) -> range:
    """Every version of `api_key` that has a schema, without a gap; empty for an unknown key."""
    name = api_key_map.get(api_key)
    if name is None:
        return range(0)
    versions = sorted(schema_name_map[name])
    return range(versions[0], versions[-1] + 1)
