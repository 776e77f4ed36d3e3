"""Real servers for tests and the demo: Kafka, a schema registry, S3, hop's offload API, Spark.

The only prerequisites are Python and a Java runtime; everything else is fetched once into a cache folder, see `cache`.
Each server listens on 127.0.0.1 and free ports, is a context manager, and ends with the process that started it, even
if that is killed.

    from serde_chain.testing.services import KafkaBroker

    with KafkaBroker() as broker:
        broker.create_topic("alerts")

Install with ``pip install 'serde-chain[services]'``; ``python -m serde_chain.testing.services kafka registry spark``
fetches servers ahead. Names are loaded on first use, so that a test with a broker does
not load Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from serde_chain.testing.services.errors import (
    ServiceDownloadError,
    ServiceError,
    ServiceMissingError,
    ServiceStartError,
)

if TYPE_CHECKING:
    from serde_chain.testing.services.kafka import KafkaBroker
    from serde_chain.testing.services.offload_server import OffloadServer
    from serde_chain.testing.services.s3 import S3Server
    from serde_chain.testing.services.schema_registry import SchemaRegistry
    from serde_chain.testing.services.spark import spark_jars, spark_session
    from serde_chain.testing.services.spark_connect import spark_connect_session

__all__ = [
    "KafkaBroker",
    "OffloadServer",
    "S3Server",
    "SchemaRegistry",
    "ServiceDownloadError",
    "ServiceError",
    "ServiceMissingError",
    "ServiceStartError",
    "spark_connect_session",
    "spark_jars",
    "spark_session",
]

_MODULES = {
    "KafkaBroker": "kafka",
    "OffloadServer": "offload_server",
    "S3Server": "s3",
    "SchemaRegistry": "schema_registry",
    "spark_connect_session": "spark_connect",
    "spark_jars": "spark",
    "spark_session": "spark",
}


def __getattr__(name: str) -> object:
    """Load one of the names above."""
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        message = f"{name} needs the package {error.name!r}: pip install 'serde-chain[services]'"
        raise ServiceMissingError(message) from error
    return getattr(module, name)
