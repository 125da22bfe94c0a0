"""ApiVersions: the APIs and features of this broker with their versions, also for clients that send a newer request.

Versions: 1 throttling, 3 flexible and with the client's software (KIP-511), 4 features that begin at 0 (KIP-1022), 5 a
client that an address led to another broker or cluster gets REBOOTSTRAP_REQUIRED (KIP-1242, Kafka 4.4).
"""

import re
from collections.abc import Sequence
from typing import Final

from odradek.broker.apis import APIS
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.serving.responses import frame as response_frame
from odradek.metadata.feature_node import TRANSACTION_VERSION, FinalizedFeatures
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.api_versions import (
    FLEXIBLE_FROM,
    Feature,
    decode_api_versions_request,
    encode_api_versions_response,
)
from odradek.protocol.primitives import Meter
from odradek.wire import Reply

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The form of a client's software name and version (KIP-511)."""
_LONGEST_NAME: Final = 100
"""Limit of the characters that a connection keeps of the software name, and of its version, for log lines."""
_VERSIONS: Final = tuple(
    (int(key), api.advertised.start, api.advertised.stop - 1) for key, api in APIS.items() if api.advertised
)
FEATURES: Final = (
    Feature(name="group.version", lowest=0, highest=1, finalized=1),
    Feature(name="metadata.version", lowest=30, highest=30, finalized=30),
    Feature(name=TRANSACTION_VERSION, lowest=0, highest=2, finalized=2),
)
"""The features that ApiVersions names (KIP-584): groups of the consumer protocol, 4.3-IV0, whose APIs are served, and
transactions, whose finalized level is in the tree. The other finalized levels are the software's."""
_METADATA_VERSION: Final = FEATURES[1].finalized


def handle(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Return the APIs and versions, or an error for malformed software names and misrouted connections."""
    header, version = context.header, context.api_version
    if context.session.admission.may_refuse:
        try:
            context.check_request(None)
        except KafkaError as error:
            return _failure(broker, context, error.code)
    meter = Meter(broker.config.most_request_entries)
    request = decode_api_versions_request(version, frame, header.body_offset, meter=meter)
    if version >= FLEXIBLE_FROM:
        software = request.software_name, request.software_version
        if not all(map(_SOFTWARE.fullmatch, software)):
            return _failure(broker, context, ErrorCode.invalid_request)
        context.session.client_software = " ".join(each[:_LONGEST_NAME] for each in software)
    here = broker.image.cluster_id, broker.config.broker_id
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != here:
        return _failure(broker, context, ErrorCode.rebootstrap_required)
    features, epoch = features_of(broker.image.features)
    body = encode_api_versions_response(version, _VERSIONS, features=features, features_epoch=epoch)
    return response_frame(header, body)


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
    broker: BrokerParts, context: RequestContext, error: ErrorCode, versions: Sequence[tuple[int, int, int]] = ()
) -> Reply:
    """Count the error, and return a response with it."""
    broker.counters.erred(ApiKey.API_VERSIONS, error)
    body = encode_api_versions_response(context.api_version, versions, error_code=error)
    return response_frame(context.header, body)
