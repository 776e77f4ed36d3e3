"""Valid stage orders. Others are refused before a stage is made; the error names both stages and their positions.

The rules name no stage. Neighbours must agree on the kind of data. Between a stage that moves whole payloads and the
broker, only stages that wrap or unwrap placeholders are allowed. Where a chain authenticates its data, moved fields are
authenticated too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeGuard

from serde_chain import base
from serde_chain.base import Data, Deserializer, Serializer, Stage, is_stage
from serde_chain.catalogue import SERIALIZE, Side
from serde_chain.errors import ConfigError


def check(stages: Sequence[object], labels: Sequence[str], side: Side) -> None:
    """Refuse an invalid order.

    Args:
        stages: Stages or stage classes; foreign callables are trusted.
        labels: Their names in messages.
        side: The direction of the chain.

    Raises:
        ConfigError: Two stages do not fit.
    """
    _check_kinds(stages, labels)
    _check_neighbours(stages, labels)
    _check_once(stages, labels)
    for at, stage in enumerate(stages):
        if is_stage(stage) and stage.moves_payloads:
            if side is SERIALIZE and stage.gives is not Data.OBJECT:
                _check_after(stages, labels, at)
            elif side is not SERIALIZE and stage.takes is not Data.OBJECT:
                _check_before(stages, labels, at)
        if isinstance(stage, base.MovesFields) and not isinstance(stage, type):
            _check_fields(stage, stages, labels, at)


def _check_kinds(stages: Sequence[object], labels: Sequence[str]) -> None:
    """Refuse declarations of another type, such as the text ``bytes``."""
    for stage, label in zip(stages, labels, strict=False):  # of a chain in parts, there are more labels
        declared = (("takes", stage.takes), ("gives", stage.gives)) if is_stage(stage) else ()
        for name, kind in declared:
            if kind is not None and not isinstance(kind, Data):
                raise ConfigError(f"{label} declares {name} = {kind!r}", hint="Declare Data.BYTES or Data.OBJECT")


def _check_neighbours(stages: Sequence[object], labels: Sequence[str]) -> None:
    """Refuse neighbours that do not fit; foreign callables are trusted."""
    for at, (stage, following) in enumerate(itertools.pairwise(stages)):
        gives = stage.gives if is_stage(stage) else None
        takes = following.takes if is_stage(following) else None
        if gives is not None and takes is not None and gives is not takes:
            raise ConfigError(
                f"{labels[at + 1]} cannot come after {labels[at]}: it takes {_plural(takes)}, "
                f"and {labels[at]} gives {_plural(gives)}",
                hint="Serializers go from object to bytes, deserializers from bytes to object; a stage for other data "
                "declares takes and gives in its class",
            )


def _check_after(stages: Sequence[object], labels: Sequence[str], at: int) -> None:
    for after, label in zip(stages[at + 1 :], labels[at + 1 :], strict=False):
        if not _is_serializer(after) or after.max_overhead is None:
            raise ConfigError(
                f"{label} cannot come after {labels[at]}",
                hint="Offload last: afterwards may come only stages that declare the most bytes they add "
                "(max_overhead), since others could lift the record above the broker's limit",
            )


def _check_before(stages: Sequence[object], labels: Sequence[str], at: int) -> None:
    for before, label in zip(stages[:at], labels[:at], strict=True):
        if not _is_deserializer(before) or not before.unwraps_placeholders:
            raise ConfigError(
                f"{label} cannot come before {labels[at]}",
                hint="Deserializers are listed in the order in which they are applied to what came from the broker, so "
                "the stage that fetches payloads comes first, after any that declare unwraps_placeholders",
            )


def _check_once(stages: Sequence[object], labels: Sequence[str]) -> None:
    """Refuse a second stage that moves fields: there is one header, and its entries would replace the first one's."""
    first: str | None = None
    for stage, label in zip(stages, labels, strict=False):
        if is_stage(stage) and stage.moves_payloads and stage.takes is stage.gives is Data.OBJECT:
            if first is not None:
                raise ConfigError(
                    f"{label} and {first} both move fields, and a record lists the moved fields of one stage",
                    hint="Name the stage once, with the paths of all fields",
                )
            first = label


def _check_fields(stage: base.MovesFields, stages: Sequence[object], labels: Sequence[str], at: int) -> None:
    """Refuse plain payloads of fields beside encrypted records."""
    if stage.authenticates_fields:
        return
    for other, label in zip(stages, labels, strict=False):
        if isinstance(other, Stage) and other.authenticates:
            raise ConfigError(
                f"{labels[at]} moves fields around {label}: their payloads would be stored unencrypted, and be "
                "accepted from writers without a key",
                hint="Name the stage in large.fields.serializers too, on both sides",
            )


def _is_serializer(stage: object) -> TypeGuard[Serializer[Any] | type[Serializer[Any]]]:
    return isinstance(stage, Serializer) or (isinstance(stage, type) and issubclass(stage, Serializer))


def _is_deserializer(stage: object) -> TypeGuard[Deserializer[Any] | type[Deserializer[Any]]]:
    return isinstance(stage, Deserializer) or (isinstance(stage, type) and issubclass(stage, Deserializer))


def _plural(data: Data) -> str:
    return "objects" if data is Data.OBJECT else "bytes"
