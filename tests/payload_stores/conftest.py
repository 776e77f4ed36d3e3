"""Servers that answer as no S3 should, for the tests of the S3 store."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests import botocore_models, http_servers

Answer = http_servers.Answer
Serve = Callable[[Answer], AbstractContextManager[str]]


@pytest.fixture
def serve() -> Serve:
    """Start an HTTP server that answers every request with a function, for the time of a ``with`` block."""
    botocore_models.keep()
    return http_servers.serve
