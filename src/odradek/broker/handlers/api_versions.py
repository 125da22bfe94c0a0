"""ApiVersions: the APIs and features of this broker with their versions, also for clients that send a newer request.

Versions: 1 throttling, 3 flexible and with the client's software (KIP-511), 4 features that begin at 0 (KIP-1022), 5 a
client that an address led to another broker or cluster gets REBOOTSTRAP_REQUIRED (KIP-1242, Kafka 4.4).
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.broker.apis import LISTED
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.serving.responses import frame as response_frame
from odradek.metadata.feature_node import TRANSACTION_VERSION, FinalizedFeatures
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import decode_request, encode_response
from odradek.protocol.primitives import Meter
from odradek.wire.reply import Reply

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The form of a client's software name and version (KIP-511)."""
_LONGEST_NAME: Final = 100
"""Limit of the characters that a connection keeps of the software name, and of its version, for log lines."""
_VERSIONS: Final = tuple(
    (int(key), api.advertised.start, api.advertised.stop - 1) for key, api in LISTED.items() if api.advertised
)
_FLEXIBLE_FROM: Final = 3
_LEVELS_FROM_0: Final = 4


class Feature(NamedTuple):
    """A feature of the cluster (KIP-584): the levels that a broker supports, and the finalized one."""

    name: str
    lowest: int
    highest: int
    finalized: int


FEATURES: Final = (
    *(
        Feature(name=f"{each}.version", lowest=0, highest=0, finalized=0)
        for each in ("eligible.leader.replicas", "kraft", "share", "streams")
    ),
    Feature(name="group.version", lowest=0, highest=1, finalized=1),
    Feature(name="metadata.version", lowest=7, highest=33, finalized=33),
    Feature(name=TRANSACTION_VERSION, lowest=0, highest=2, finalized=2),
)
"""The features that ApiVersions names (KIP-584): four that are off, groups of the consumer protocol, 4.4-IV2, whose
APIs are served, and transactions, whose finalized level is in the tree. The other levels are the software's."""
_METADATA_VERSION: Final = FEATURES[-2].finalized


def handle(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Return the APIs and versions, or an error for malformed software names and misrouted connections."""
    header, version = context.header, context.api_version
    if context.session.admission.may_refuse:
        try:
            context.check_request(None)
        except KafkaError as error:
            return _failure(broker, context, error.code)
    meter = Meter(broker.config.most_request_entries)
    request = decode_request(ApiKey.API_VERSIONS, version, bytes(frame[header.body_offset :]), meter=meter)
    if version >= _FLEXIBLE_FROM:
        software = request.client_software_name, request.client_software_version
        if not all(map(_SOFTWARE.fullmatch, software)):
            return _failure(broker, context, ErrorCode.invalid_request)
        context.session.client_software = " ".join(each[:_LONGEST_NAME] for each in software)
    here = broker.image.cluster_id, broker.config.broker_id
    named = getattr(request, "cluster_id", None)
    if named is not None and (named, request.node_id) != here:
        return _failure(broker, context, ErrorCode.rebootstrap_required)
    features, epoch = features_of(broker.image.features)
    # Version 3 omits supported features from level 0, which some clients refuse.
    supported = [each for each in features if each.lowest > 0 or version >= _LEVELS_FROM_0]
    message = {
        "error_code": ErrorCode.none,
        "api_keys": _listed(_VERSIONS),
        "supported_features": [
            {"name": each.name, "min_version": each.lowest, "max_version": each.highest} for each in supported
        ],
        "finalized_features_epoch": epoch,
        "finalized_features": [
            {"name": each.name, "min_version_level": each.finalized, "max_version_level": each.finalized}
            for each in features
            if each.finalized
        ],
    }
    return response_frame(header, encode_response(header.api_key, version, message))


def handle_unsupported_version(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Return a response of version 0: UNSUPPORTED_VERSION and only the versions of ApiVersions (KIP-511)."""
    del frame
    versions = [each for each in _VERSIONS if each[0] == ApiKey.API_VERSIONS]
    as_first = context._replace(header=context.header._replace(api_version=0))
    return _failure(broker, as_first, ErrorCode.unsupported_version, versions)


def features_of(finalized: FinalizedFeatures) -> tuple[tuple[Feature, ...], int]:
    """Return the features with the levels of the cluster, and their epoch.

    The epoch grows with each change and each release with a new level: clients keep the levels of the highest epoch.
    """
    *others, transactions = FEATURES
    current = transactions._replace(finalized=min(finalized.transaction_version, transactions.highest))
    return (*others, current), _METADATA_VERSION + finalized.changes


def _failure(
    broker: BrokerParts, context: RequestContext, error: ErrorCode, versions: Iterable[tuple[int, int, int]] = ()
) -> Reply:
    """Count the error, and return a response with it."""
    broker.counters.erred(ApiKey.API_VERSIONS, error)
    message = {"error_code": error, "api_keys": _listed(versions)}
    return response_frame(context.header, encode_response(ApiKey.API_VERSIONS, context.api_version, message))


def _listed(versions: Iterable[tuple[int, int, int]]) -> list[dict[str, int]]:
    return [{"api_key": key, "min_version": first, "max_version": last} for key, first, last in versions]
