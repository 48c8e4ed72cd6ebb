"""AlterConfigs, which replaces all overrides of a resource, and IncrementalAlterConfigs, which changes some of them.

Owns the operations and the order of the checks. Leaves valid values to `config_rules`, and loggers to the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from ..configs.definition import Type
from ..configs.table import Resource, definitions
from ..image import ClusterImage, ConfigResource
from .config_rules import check_resource, check_values
from .context import CommandContext, Refusal
from .min_isr import clear_elr_records


class OpType(IntEnum):
    """The operation on one configuration (AlterConfigOp)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One configuration of a request."""

    name: str
    operation: int
    value: str | None


class ResourceResult(NamedTuple):
    """The result for one resource, in the order of the fields of both responses."""

    error: ErrorCode
    message: str | None
    type: int
    name: str


def incremental_alter_configs(
    image: ClusterImage, request: IncrementalAlterConfigsRequest, context: CommandContext
) -> tuple[list[Message], IncrementalAlterConfigsResponse]:
    wanted = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    records, results = _alter_all(image, wanted, context, replace=False)
    responses = [IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(*result) for result in results]
    return ([] if request.validate_only else records), IncrementalAlterConfigsResponse(responses=responses)


def alter_configs(
    image: ClusterImage, request: AlterConfigsRequest, context: CommandContext
) -> tuple[list[Message], AlterConfigsResponse]:
    wanted = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, OpType.SET, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    records, results = _alter_all(image, wanted, context, replace=True)
    responses = [AlterConfigsResponse.AlterConfigsResourceResponse(*result) for result in results]
    return ([] if request.validate_only else records), AlterConfigsResponse(responses=responses)


def _alter_all(
    image: ClusterImage,
    wanted: Sequence[tuple[ConfigResource, Sequence[ConfigChange]]],
    context: CommandContext,
    *,
    replace: bool,
) -> tuple[list[Message], list[ResourceResult]]:
    """Decide each resource alone: an invalid one does not stop the others.

    A change of `min.insync.replicas` also clears eligible leaders (KIP-966).
    """
    times = Counter(resource for resource, _ in wanted)
    records: list[Message] = []
    results = []
    for resource, changes in wanted:
        outcome = _REPEATED if times[resource] > 1 else _alter(image, resource, changes, context, replace=replace)
        if isinstance(outcome, Refusal):
            results.append(ResourceResult(outcome.error, outcome.message, resource.type, resource.name))
        else:
            records += outcome
            results.append(ResourceResult(ErrorCode.NONE, None, resource.type, resource.name))
    return [*records, *clear_elr_records(image, records)], results


_REPEATED = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _alter(
    image: ClusterImage,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    context: CommandContext,
    *,
    replace: bool,
) -> list[Message] | Refusal:
    refusal = _check_shape(changes) or check_resource(image, resource.type, resource.name, context)
    if refusal is not None:
        return refusal
    before = image.configs.get(resource, {})
    after: dict[str, str] = {} if replace else dict(before)
    for change in changes:
        refusal = _apply(change, resource, after, context, image)
        if refusal is not None:
            return refusal
    changed = {change.name for change in changes if change.operation != OpType.DELETE}
    refusal = check_values(image, resource.type, resource.name, after, changed, context)
    if refusal is not None:
        return refusal
    return _records(resource, before, after)


def _check_shape(changes: Sequence[ConfigChange]) -> Refusal | None:
    """Return the first error that the changes have whatever their resource is, or None."""
    if len({change.name for change in changes}) < len(changes):
        return Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.value is None and change.operation != OpType.DELETE]
    if nulls:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    for change in changes:
        if not 0 <= change.operation <= 3:
            message = f"Unknown operation {change.operation} on {change.name}, expected 0 (SET) to 3 (SUBTRACT)."
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def _apply(
    change: ConfigChange, resource: ConfigResource, values: dict[str, str], context: CommandContext, image: ClusterImage
) -> Refusal | None:
    """Apply the change to `values`; without an override APPEND and SUBTRACT start from the inherited value."""
    name, value = change.name, change.value or ""
    if change.operation == OpType.DELETE:
        values.pop(name, None)
    elif change.operation == OpType.SET:
        values[name] = value
    else:
        operation = OpType(change.operation)
        definition = definitions(Resource(resource.type), context.release).get(name)
        if definition is None or definition.type is not Type.LIST:
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Can't {operation.name} to key {name} because its type is not LIST.",
            )
        words = _words(values[name] if name in values else _inherited(name, resource, context, image))
        wanted = _words(value)
        if operation is OpType.APPEND:
            words += [word for word in wanted if word not in words]
        else:
            words = [word for word in words if word not in wanted]
        values[name] = ",".join(words)
    return None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _inherited(name: str, resource: ConfigResource, context: CommandContext, image: ClusterImage) -> str:
    """Return the value that applies without an override of the resource."""
    layers = context.layers(image)
    definition = definitions(Resource(resource.type), context.release)[name]
    if resource.type == Resource.TOPIC:
        return layers.topic(definition).value or ""
    if resource.type == Resource.BROKER:
        return context.static.get(name, definition.default or "")
    return definition.default or ""


def _records(resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]) -> list[Message]:
    """Return the records of the values that differ."""
    removed = [ConfigRecord(resource.type, resource.name, name, None) for name in before if name not in after]
    changed = [
        ConfigRecord(resource.type, resource.name, name, value)
        for name, value in after.items()
        if before.get(name) != value
    ]
    return [*removed, *changed]
