"""Batches of ``json``."""

from collections.abc import Mapping
from typing import Any

import pytest

from serde_chain import DeserializerChain
from serde_chain.arrow import Batch
from serde_chain.errors import MissingDependencyError
from serde_chain.stages.json.stage import JsonDeserializer


class OnlyEven(JsonDeserializer):
    """Refuses odd numbers with an error of its own."""

    refusal: Exception = KeyError("odd")

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)
        read, refusal = self.plain, self.refusal
        assert read is not None

        def plain(data: Any) -> Any:
            if (number := read(data)) % 2:
                raise refusal
            return number

        self.plain = plain


def test_an_error_of_a_subclass_names_its_row() -> None:
    chain = DeserializerChain.from_config({"value.deserializers": [OnlyEven]})
    result = chain.read_batch(Batch([b"2", b"3", b"4", b"not JSON"], topic="t"))
    assert result.values.to_pylist() == ["2", None, "4", None]
    assert [(row, error.row, error.stage, error.topic) for row, error in result.errors.items()] == [
        (row, row, "OnlyEven (1 of 1)", "t") for row in (1, 3)
    ]
    assert "KeyError: 'odd'" in str(result.errors[1])
    assert isinstance(result.errors[1].__cause__, KeyError)
    assert result.errors[1].about_record


def test_a_missing_package_is_no_error_of_a_row() -> None:
    class Lacking(OnlyEven):
        refusal = MissingDependencyError("odd is not installed")

    chain = DeserializerChain.from_config({"value.deserializers": [Lacking]})
    with pytest.raises(MissingDependencyError, match="odd is not installed"):
        chain.read_batch(Batch([b"3"], topic="t"))
