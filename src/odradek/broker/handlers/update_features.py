"""UpdateFeatures: finalize other levels of features (KIP-584). Any broker serves it.

Only `transaction.version` has several levels: the others are the software's. All updates are made, or none. Versions: 1
the kind of upgrade in place of `allow_downgrade`, and `validate_only`; 2 no results by feature.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from odradek.broker.handlers.api_versions import FEATURES, Feature
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.metadata.feature_node import TRANSACTION_VERSION
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.update_features.v2.request import FeatureUpdateKey
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest as Message

_RESULTS_UNTIL: Final = 1
_SUPPORTED: Final = {each.name: each for each in FEATURES}
_OFF: Final = Feature(name="", lowest=0, highest=0, finalized=0)
_UNSUPPORTED: Final = "does not support this feature."

_METADATA_VERSION: Final = "metadata.version"
_UNSAFE: Final = "Unsafe metadata downgrade is not supported in this version."
_LOSSY: Final = "Refusing to perform the requested downgrade because it might delete metadata information."


class _Upgrade(IntEnum):
    """The kinds of updates."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the error of the first update that is refused; INVALID_UPDATE_VERSION for a level out of range."""
    controller_id = broker.image.controller_id
    is_dry = optional(message, "validate_only", False)

    def change(before: Mapping[str, int]) -> Mapping[str, int]:
        after = dict(before)
        for update in message.feature_updates:
            level = _level(update, before, controller_id)
            if update.feature == TRANSACTION_VERSION:
                after[TRANSACTION_VERSION] = level
        return before if is_dry else after

    try:
        await broker.metadata_loop.change_features(change)
    except KafkaError as error:
        text = f"The update failed for all features since the following feature had an error: {error}"
        return _answer(context, message, error.code, text)
    return _answer(context, message, ErrorCode.none, None)


def _answer(context: RequestContext, message: "Message", error: ErrorCode, text: str | None) -> dict[str, object]:
    has_results = context.api_version <= _RESULTS_UNTIL and error is ErrorCode.none
    names = dict.fromkeys(update.feature for update in message.feature_updates) if has_results else ()
    results = [{"feature": name, "error_code": ErrorCode.none, "error_message": None} for name in names]
    return {"error_code": error, "error_message": text, "results": results}


def _level(update: "FeatureUpdateKey", finalized: Mapping[str, int], controller_id: int) -> int:
    """Return the new level of a feature. Raises `KafkaError`, in Kafka's words, if the update is not allowed."""
    name, level = update.feature, update.max_version_level
    kind = optional(update, "upgrade_type", None)
    if kind is None:
        kind = _Upgrade.SAFE_DOWNGRADE if optional(update, "allow_downgrade", False) else _Upgrade.UPGRADE
    if kind not in set(_Upgrade):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    feature = _SUPPORTED.get(name, _OFF)
    if feature is _OFF and not level:
        raise _invalid(name, level, f"Feature {name} not found.")
    if not feature.lowest <= level <= feature.highest:
        lowest, highest = feature.lowest, feature.highest
        versions = f"only supports versions {highest if lowest == highest else f'{lowest}-{highest}'}"
        raise _invalid(name, level, f"Local controller {controller_id} {versions if highest else _UNSUPPORTED}")
    current = finalized.get(name, 0) if name == TRANSACTION_VERSION else feature.finalized
    if level < current and kind == _Upgrade.UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and kind != _Upgrade.UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == _METADATA_VERSION and level < current:
        problem = _UNSAFE if kind == _Upgrade.UNSAFE_DOWNGRADE else _LOSSY
        text = f"Unsupported metadata.version downgrade from {current} to {level}. {problem}"
        raise KafkaError(ErrorCode.invalid_update_version, text)
    if name != TRANSACTION_VERSION and level != current:
        raise _invalid(name, level, f"This release has level {current}, which cannot be changed.")
    return int(level)


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {reason}")
