"""UpdateFeatures. The release that the cluster emulates fixes most levels: a change of those is refused.

A request may raise and lower `transaction.version`, because clients and coordinators follow it immediately. It may
raise, but not lower, a feature that announces a protocol to clients: a cluster can be older than the release of Odradek
that first serves the protocol.
"""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.feature_level_record import FeatureLevelRecord
from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from ..image import ClusterImage
from ..levels import FEATURE_APIS, TRANSACTION_VERSION
from .context import CommandContext

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(
    image: ClusterImage, request: UpdateFeaturesRequest, context: CommandContext
) -> tuple[list[Message], UpdateFeaturesResponse]:
    """Refuse the whole request if one update is refused, as Kafka does. An update to the current level is no change."""
    records: list[Message] = []
    for update in request.feature_updates:
        why = _why_refused(image, update, context)
        if why is not None:
            message = (
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}"
            )
            return [], UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
        if update.max_version_level != image.levels.level(update.feature):
            records.append(FeatureLevelRecord(update.feature, update.max_version_level))
    # Only versions 0 and 1 have results; the message of a success is the text "NONE".
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(update.feature, ErrorCode.NONE, "NONE")
        for update in request.feature_updates
    ]
    return [] if request.validate_only else records, UpdateFeaturesResponse(error_message=None, results=results)


def _why_refused(
    image: ClusterImage,
    update: UpdateFeaturesRequest.FeatureUpdateKey,
    context: CommandContext,
) -> str | None:
    name, level = update.feature, update.max_version_level
    upgrade_type = update.upgrade_type  # in version 0 always an upgrade, because Kafka ignores its `allow_downgrade`
    supported = context.settable_features.get(name)
    if supported is None:
        return f"Local controller {context.node_id} does not support this feature."
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if not supported.low <= level <= supported.high:
        return f"Local controller {context.node_id} only supports versions {supported.low}-{supported.high}"
    current = image.levels.level(name)
    if level == current:
        return None
    if level > current and upgrade_type != _UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current and upgrade_type == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if name == TRANSACTION_VERSION or (name in FEATURE_APIS and level > current):
        return None
    return "The level of this feature is fixed by the release that the cluster emulates."
