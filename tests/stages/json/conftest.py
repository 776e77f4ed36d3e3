"""The fixtures of tests with a registry."""

from tests.schemas.conftest import client, topic

__all__ = ["client", "topic"]
