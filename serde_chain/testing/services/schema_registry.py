"""A real schema registry: Apicurio, which speaks Confluent's REST interface."""

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serde_chain.testing.services.jars import jars
from serde_chain.testing.services.java import QUICK_START, REGISTRY_VERSION, any_java
from serde_chain.testing.services.ports import HOST, http_answers
from serde_chain.testing.services.process import Service

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_API = "/apis/ccompat/v7"


class SchemaRegistry(Service):
    """A schema registry, in memory unless it has a folder.

    Example:
        >>> with SchemaRegistry() as registry:  # doctest: +SKIP
        ...     serializer = AvroSerializer(registry.client(), schema, conf=registry.serializer_conf())
    """

    name = "schema-registry"
    port_count = 2
    start_seconds = 120

    @property
    def url(self) -> str:
        """Address of Confluent's interface, as for ``schema.registry.url``."""
        return f"http://{HOST}:{self._port()}{_API}"

    def client(self, *, timeout_s: float = 30) -> "SchemaRegistryClient":
        """Confluent's client for this registry.

        Args:
            timeout_s: Maximum wait for an answer, in seconds; Confluent's own default is unlimited.
        """
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient({"url": self.url, "timeout": timeout_s})

    @staticmethod
    def serializer_conf() -> dict[str, Any]:
        """Settings that prevent Confluent's serializers and deserializers from requesting associations.

        They request them by default since confluent_kafka 2.16, and the registry sometimes never sends its 404.
        """
        from confluent_kafka.schema_registry import topic_subject_name_strategy

        return {"subject.name.strategy": topic_subject_name_strategy}

    def _prepare(self, folder: Path) -> list[str]:
        program = registry_program()
        kept = [] if self._kept is None else [f"-Dapicurio.datasource.url=jdbc:h2:file:{folder / 'registry'}"]
        return [
            any_java(REGISTRY_VERSION),
            *kept,
            "-Xmx512m",
            *QUICK_START,
            f"-Djava.io.tmpdir={folder}",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={self._port()}",
            # Health and metrics, on port 9000 by default, where two registries would collide.
            f"-Dquarkus.management.host={HOST}",
            f"-Dquarkus.management.port={self._port(1)}",
            "-jar",
            str(program / "quarkus-run.jar"),
        ]

    def _environment(self) -> Mapping[str, str]:
        # The log goes to a file: no colours.
        return {"QUARKUS_LOG_CONSOLE_COLOR": "false"}

    def _ready(self) -> bool:
        return http_answers(self._port(), f"{_API}/subjects")


def registry_program() -> Path:
    """The folder with the registry's program, fetched on first use.

    Raises:
        ServiceMissingError: pyspark or Java is not installed.
        ServiceDownloadError: It could not be fetched.
    """
    return jars("registry", _unpack)


def _unpack(folder: Path) -> None:
    """Replace the archive in a folder by its content."""
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        # Python 3.11.0 to 3.11.3 have no filters.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        tar.extractall(folder)  # noqa: S202 - filtered, see above
    archive.unlink()
