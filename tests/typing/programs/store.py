"""A user's program: a payload store of their own."""

from collections.abc import Mapping

from payload_stores import PayloadNotFoundError, PayloadStore, PublishContext, SupportsDelete, open_store
from payload_stores.base import Buffer


class DictStore(PayloadStore):
    scheme = "dict"

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self.payloads: dict[str, bytes] = {}

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        reference = f"dict:///{self.check_topic(topic)}/{self.id(data, context)}"
        self.payloads[reference] = bytes(data)
        return reference

    def download(self, reference: str) -> bytes:
        try:
            return self.payloads[reference]
        except KeyError:
            raise PayloadNotFoundError("the payload is gone", store=self.scheme, reference=reference) from None


store = open_store(DictStore, {})
payload: bytes = store.download(store.publish("topic", b"payload"))
if isinstance(store, SupportsDelete):
    store.delete("dict:///topic/1")
