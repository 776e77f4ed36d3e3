"""The options that a plug-in reads, compared with those that it declares."""

# ruff: noqa: S101  pytest checks with assert

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from payload_stores.options import UNDECLARED, Option


def check_options(
    make: Callable[[], object], settings: Mapping[str, object], declared: Iterable[Option[Any]], label: str
) -> None:
    """Fail if a plug-in reads an option that it does not declare: a configuration with its key would be refused.

    Args:
        make: Makes and configures the plug-in.
        settings: The settings with which it is configured. What it makes itself may read others.
        declared: The options that it declares; it may read any if ``UNDECLARED`` is one of them.
        label: Its name, for messages.
    """
    seen: set[str] = set()
    read = Option.read

    def observed(option: Option[Any], config: Mapping[str, object]) -> Any:
        if config == settings:
            seen.add(option.name)
        return read(option, config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Option, "read", observed)
        make()
    declared = tuple(declared)
    missing = sorted(name for name in seen if not any(option.matches(name) for option in declared))
    assert UNDECLARED in declared or not missing, (
        f"{label} reads {', '.join(missing)}, not in its `options`: users could not set it"
    )
