"""Real servers for tests and the demo: Kafka, a schema registry, S3, hop's offload API, Spark.

The only prerequisites are Python and, for Spark, a Java runtime; servers are fetched once into a folder, see `cache`.
Each server listens on 127.0.0.1 and free ports, is a context manager, and ends with the process that started it, even
if that is killed.

    from serde_chain.testing.services import KafkaBroker

    with KafkaBroker() as broker:
        broker.create_topic("alerts")

Install with ``pip install 'serde-chain[services]'``; ``python -m serde_chain.testing.services kafka registry spark``
fetches servers ahead. Names are loaded on first use, so that a test with a broker does
not load Spark.
"""

from typing import TYPE_CHECKING

from payload_stores.errors import MissingDependencyError
from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.testing.services.errors import ServiceDownloadError as ServiceDownloadError
    from serde_chain.testing.services.errors import ServiceError as ServiceError
    from serde_chain.testing.services.errors import ServiceMissingError as ServiceMissingError
    from serde_chain.testing.services.errors import ServiceStartError as ServiceStartError
    from serde_chain.testing.services.kafka import KafkaBroker as KafkaBroker
    from serde_chain.testing.services.offload_server import OffloadServer as OffloadServer
    from serde_chain.testing.services.s3 import S3Server as S3Server
    from serde_chain.testing.services.schema_registry import SchemaRegistry as SchemaRegistry
    from serde_chain.testing.services.spark import spark_jars as spark_jars
    from serde_chain.testing.services.spark import spark_session as spark_session
    from serde_chain.testing.services.spark_connect import spark_connect_session as spark_connect_session
else:
    __all__, _load, __dir__ = _lazy_names(
        __name__,
        {
            ".errors": "ServiceDownloadError ServiceError ServiceMissingError ServiceStartError",
            ".kafka": "KafkaBroker",
            ".offload_server": "OffloadServer",
            ".s3": "S3Server",
            ".schema_registry": "SchemaRegistry",
            ".spark": "spark_jars spark_session",
            ".spark_connect": "spark_connect_session",
        },
    )

    def __getattr__(name: str) -> object:
        try:
            return _load(name)
        except (ModuleNotFoundError, MissingDependencyError) as error:
            from serde_chain.testing.services.errors import ServiceMissingError

            # The offload server's own error names its own extra.
            first = error.__cause__ if isinstance(error.__cause__, ImportError) else error
            message = f"{name} needs the package {first.name!r}: pip install 'serde-chain[services]'"
            raise ServiceMissingError(message) from error
