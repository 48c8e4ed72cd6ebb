"""UpdateFeatures: the levels of a cluster are those of the release it emulates; a change is refused, politely."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from ..image import ClusterImage
from ..levels import Emulation
from .settings import Refusal


def update_features(
    image: ClusterImage, request: UpdateFeaturesRequest, emulation: Emulation
) -> tuple[list[Message], UpdateFeaturesResponse]:
    """One refusal refuses the request, as in Kafka; setting a level that is already there is no change."""
    for update in request.feature_updates:
        refusal = _refuse(image, update, emulation)
        if refusal is not None:
            message = f"The update failed for all features since the following feature had an error: {refusal.message}"
            return [], UpdateFeaturesResponse(error_code=refusal.error, error_message=message)
    results = [UpdateFeaturesResponse.UpdatableFeatureResult(update.feature) for update in request.feature_updates]
    return [], UpdateFeaturesResponse(results=results)


def _refuse(
    image: ClusterImage, update: UpdateFeaturesRequest.FeatureUpdateKey, emulation: Emulation
) -> Refusal | None:
    name, level = update.feature, update.max_version_level
    supported = emulation.supported.get(name)
    if supported is None:
        return _invalid(name, level, "Controller does not support this feature.")
    if not supported.low <= level <= supported.high:
        return _invalid(name, level, f"Controller only supports versions {supported.low}-{supported.high}")
    if level == image.levels.level(name):
        return None
    return _invalid(name, level, "Odradek keeps the levels of the release it emulates; see --emulate.")


def _invalid(name: str, level: int, why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}")
