"""The settings that a subclass of a suite must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest


class RequiredSettings:
    """Fails one test if a subclass lacks a setting, and skips the others, which would all fail for the same reason.

    Attributes:
        required_settings: Names of the class attributes, each with an example.
    """

    required_settings: ClassVar[Mapping[str, str]] = {}

    def missing_settings(self) -> str:
        """The missing settings, for messages; empty if there are none."""
        missing = [f"{name} = {example}" for name, example in self.required_settings.items() if not hasattr(self, name)]
        return f"{type(self).__name__} does not set {' and '.join(missing)}" if missing else ""

    @pytest.fixture(autouse=True)
    def skip_without_settings(self, request: pytest.FixtureRequest) -> None:
        """Skip a test that needs a missing setting."""
        missing = self.missing_settings()
        if missing and request.function.__name__ != RequiredSettings.test_the_suite_has_its_settings.__name__:
            pytest.skip(missing)

    def test_the_suite_has_its_settings(self) -> None:
        """A subclass names what it tests."""
        missing = self.missing_settings()
        assert not missing, missing  # noqa: S101
