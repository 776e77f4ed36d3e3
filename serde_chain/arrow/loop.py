"""The loop that runs a chain over a batch, part by part.

A stage's output may be many times its input: ten thousand references may refer to gigabytes. So a batch can pass
through a chain in parts, each of which is finished before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from serde_chain.arrow.batch import Batch, BatchForm, SupportsBatchForm, wrong_rows
from serde_chain.arrow.columns import binary_column
from serde_chain.base import Data, Stage, SupportsArrowType, is_same_work
from serde_chain.errors import DecodeError, SerializationError, without_data


def find_form(stage: object) -> BatchForm | None:
    """The batch form that a stage offers, or None."""
    # A subclass that overrides the work on a record has no batch form of its own for it.
    if isinstance(stage, SupportsBatchForm) and is_same_work(stage, "batch_form"):
        return stage.batch_form()
    return None


def declared_type(stage: object) -> Any | None:
    """The ``pyarrow.DataType`` that a stage declares for its results, before its first record; or None."""
    form = find_form(stage)
    if form is not None and form.arrow_type is not None:
        return form.arrow_type
    return stage.arrow_type() if isinstance(stage, SupportsArrowType) else None


# Types whose length is their size in memory; for other objects, the length of their source counts.
_SIZED: Final = (bytes, str, memoryview, bytearray)

Place = Callable[[int, Exception, Any], Exception]


def run(
    stages: Sequence[tuple[Any, BatchForm | None]],
    batch: Batch,
    place: Place,
    most_bytes: int | None = None,
    at: int = 0,
) -> Iterator[Batch]:
    """Run a batch through the stages of a chain.

    Args:
        stages: Each stage with its batch form.
        batch: The records.
        place: Makes the error to report from a stage's position in the chain, its exception, and the record's context.
        most_bytes: Approximate limit of the bytes between two stages; None for no limit.
        at: Position of the first of these stages in the chain.

    Yields:
        The batch's parts, in order, each with a column of the last stage's type.
    """
    if not stages:
        for piece in batch.pieces(most_bytes):
            if piece.columns is not None:
                piece.take(piece.columns.of(piece.column))
            yield piece
        return
    (stage, form), *others = stages
    if not _keeps_form(stage, form, others, batch):
        form = None
    for part in _step(stage, form, batch, partial(place, at), most_bytes, last=not others):
        for error in part.errors.values():
            if error.stage is None:
                place(at, error, None)
        if part.columns is not None and not part.is_listed and _take_columns(others):
            part.take(part.columns.of(part.column))
        if others:
            yield from run(others, part, place, most_bytes, at + 1)
        else:
            yield part


def _keeps_form(
    stage: Any, form: BatchForm | None, others: Sequence[tuple[Any, BatchForm | None]], batch: Batch
) -> bool:
    """Whether a stage works on whole columns here."""
    if form is not None and form.takes_columns and batch.is_listed:
        return False  # the stage before has given objects
    # Other later stages need the stage's objects, not a column's conversion of them.
    return not isinstance(stage, Stage) or stage.gives is Data.BYTES or _take_columns(others)


def _take_columns(stages: Sequence[tuple[Any, BatchForm | None]]) -> bool:
    """Whether stages work on a typed column."""
    return all(form is not None and form.takes_columns for _, form in stages)


def _step(
    stage: Any,
    form: BatchForm | None,
    batch: Batch,
    place: Callable[[Exception, Any], Exception],
    most_bytes: int | None,
    *,
    last: bool,
) -> Iterator[Batch]:
    """One stage."""
    if form is not None:
        yield from _all_rows(form, batch, place, most_bytes)
        return
    for piece in batch.pieces(most_bytes):
        for part in _record_by_record(stage, piece, place, most_bytes):
            if last:
                part.take(_finish(stage, part.objects, part))
            yield part


def _all_rows(
    form: BatchForm, batch: Batch, place: Callable[[Exception, Any], Exception], most_bytes: int | None
) -> Iterator[Batch]:
    """The parts of a batch form: with a missing or extra row, records would get the values of others.

    Raises:
        DecodeError: The number of rows is wrong; no record is at fault.
    """
    rows, expected = 0, len(batch)
    try:
        for part in form.parts(batch, most_bytes):
            rows += len(part)
            yield part
        if rows != expected:
            raise wrong_rows(rows, expected)
    except SerializationError as error:
        raise place(error, None) from error.__cause__


def _record_by_record(
    stage: Any, batch: Batch, place: Callable[[Exception, Any], Exception], most_bytes: int | None
) -> Iterator[Batch]:
    """Call a stage for each record.

    Raises:
        Exception: An error that is no record's, such as a missing dependency.
    """
    batch.prepare()
    given: list[Any] = []
    objects = batch.objects
    start = size = 0
    for row, data in enumerate(objects):
        value = None
        if data is not None:
            ctx = batch.context(row)
            try:
                value = stage(data, ctx)
            except Exception as error:  # noqa: BLE001, any error of a stage, as for single records
                failure = place(error, ctx)
                try:
                    if not isinstance(failure, SerializationError):
                        raise failure from failure.__cause__
                    batch.fail(row, failure)
                finally:
                    del failure  # or it would hold itself, by this frame
            size += next((len(held) for held in (value, data) if isinstance(held, _SIZED)), 0)
        given.append(value)
        if most_bytes is not None and size >= most_bytes and row + 1 < len(objects):
            part = batch.part(start, row + 1)
            part.take_objects(given)
            yield part
            given, start, size = [], row + 1, 0
    part = batch.part(start, len(objects))
    part.take_objects(given)
    yield part


def _finish(stage: Any, objects: list[Any], batch: Batch) -> Any:
    """The last stage's objects in Arrow."""
    arrow = batch.arrow
    kind = stage.arrow_type() if isinstance(stage, SupportsArrowType) else None
    if kind is not None:
        fitting = [_fitting(value, kind, arrow) for value in objects]
        return batch.collect(fitting, lambda values: arrow.array(values, type=kind))
    all_bytes = all(value is None or isinstance(value, (bytes, bytearray, memoryview)) for value in objects)
    if all_bytes or (isinstance(stage, Stage) and stage.gives is Data.BYTES):
        return binary_column(objects)
    try:
        return arrow.array(objects)
    except (arrow.ArrowException, OverflowError) as error:
        raise DecodeError(
            f"the stage's results have no common Arrow type: {without_data(error)}",
            hint="Give the stage a method arrow_type, or a batch form (serde_chain.arrow.SupportsBatchForm)",
        ) from None


def _fitting(value: Any, kind: Any, arrow: Any) -> Any:
    return str(value) if value is not None and arrow.types.is_string(kind) else value
