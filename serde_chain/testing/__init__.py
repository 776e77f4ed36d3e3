"""Test tools for authors of stages and stores, and for users who test their chains.

:class:`~serde_chain.testing.serializers.SerializerTests` tests a new stage against the whole contract with a few lines.
It requires pytest and hypothesis, so it is loaded on first use: the servers of :mod:`serde_chain.testing.services`
require neither.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serde_chain.testing.serializers import SerializerTests

__all__ = ["SerializerTests"]


if not TYPE_CHECKING:  # type checkers would accept any misspelt name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from payload_stores.plugins import require

        # Before the import, so that a failed assert shows its values.
        require("pytest", "testing").register_assert_rewrite("serde_chain.testing.serializers")
        from serde_chain.testing import serializers

        return getattr(serializers, name)


def __dir__() -> list[str]:
    return sorted(__all__)
