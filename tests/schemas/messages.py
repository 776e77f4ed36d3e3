"""Protobuf messages for the peers, from the text of a file."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

from serde_chain.stages.protobuf import proto_text

TEXT: Final = """
syntax = "proto3";
package survey;  // the peers' texts have comments too
import "google/protobuf/timestamp.proto";

/* Messages in an order that is not that of their names. */
message Visit {
  repeated double flux = 1;
  message Note { string text = 1; }
  Note note = 2;
}
message Alert {
  int64 id = 1;
  optional double magnitude = 2;
  map<string, double> scores = 3;
  repeated Visit history = 4;
  google.protobuf.Timestamp time = 5;
  oneof place { string name = 6; bytes code = 7; }
  Band band = 8;
}
enum Band { U = 0; G = 1; R = 2; }
"""


def classes(text: str, *names: str) -> list[Any]:
    """The classes of messages of a file."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(proto_text.parse("survey.proto", text))
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"survey.{name}")) for name in names]


ALERT, VISIT = classes(TEXT, "Alert", "Visit")
MESSAGE: Final = ALERT(
    id=7, magnitude=21.5, scores={"real": 0.5}, history=[{"flux": [1.5]}], time={"seconds": 5}, name="M 51", band=2
)
