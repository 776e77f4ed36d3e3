"""The Java serdes of registries, each in a JVM of its own: their libraries exclude each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j import java_gateway
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import get_return_value

from serde_chain.testing.services.java import QUICK_START, system_java

# As Java writes it: moto compares texts, Glue itself what they mean.
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "namespace": "survey",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    },
    separators=(",", ":"),
)
JSON = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
VALUE = {"id": 7, "name": "M 51"}


class Java:
    """A JVM with the serde of one registry.

    Args:
        gateway: py4j's way to it.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self.jvm: Any = gateway.jvm

    def map(self, settings: Mapping[str, object]) -> Any:
        made = self.jvm.java.util.HashMap()
        for key, value in settings.items():
            made.put(key, value)
        return made

    def avro(self, schema: str, value: Mapping[str, object]) -> Any:
        """A generic record of Avro."""
        record = self.jvm.org.apache.avro.generic.GenericRecordBuilder(
            self.jvm.org.apache.avro.Schema.Parser().parse(schema)
        )
        for name, item in value.items():
            record.set(name, item)
        return record.build()

    def message(self, message: Any) -> Any:
        """A dynamic message of Protobuf."""
        descriptor = self._file(message.DESCRIPTOR.file).findMessageTypeByName(message.DESCRIPTOR.name)
        return self.jvm.com.google.protobuf.DynamicMessage.parseFrom(descriptor, message.SerializeToString())

    def _file(self, file: Any) -> Any:
        protobuf = self.jvm.com.google.protobuf
        imports = self._gateway.new_array(protobuf.Descriptors.FileDescriptor, len(file.dependencies))
        for at, imported in enumerate(file.dependencies):
            imports[at] = self._file(imported)
        parsed = protobuf.DescriptorProtos.FileDescriptorProto.parseFrom(file.serialized_pb)
        return protobuf.Descriptors.FileDescriptor.buildFrom(parsed, imports)


@contextmanager
def running(folder: str) -> Iterator[Java]:
    """Run a JVM with the jars of a folder."""
    py4j = str(next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")))
    port = launch_gateway(
        classpath=f"{folder}/*:{py4j}",
        jarpath=py4j,
        java_path=system_java(),
        javaopts=["-Xmx512m", *QUICK_START],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        with pytest.MonkeyPatch.context() as patch:
            # pyspark puts its own in place, which asks the JVM of a session about errors of this one.
            patch.setattr(java_gateway, "get_return_value", get_return_value)
            yield Java(gateway)
    finally:
        gateway.shutdown()
