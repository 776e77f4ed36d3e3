"""The store ``mirror``: every payload in two stores, both named in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from payload_stores.middleware import Middleware, Mirror, Translated
from payload_stores.options import Option
from payload_stores.registry import ConfiguredStore


class MirrorStore(Middleware):
    """:class:`~payload_stores.middleware.Mirror`, made from a configuration.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from payload_stores import open_store
        >>> with TemporaryDirectory() as folder:
        ...     old = {"class": "local", "local.path": folder + "/old"}
        ...     new = {"class": "local", "local.path": folder + "/new"}
        ...     store = open_store({"class": "mirror", "mirror.primary": new, "mirror.secondary": old}, {})
        ...     store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    PRIMARY: ClassVar[Option[Any]] = Option(
        "mirror.primary",
        lambda value: value,
        None,
        required=True,
        doc='the store whose references are written, named as a store is: s3, or {"class": "s3", …}',
    )
    SECONDARY: ClassVar[Option[Any]] = Option(
        "mirror.secondary",
        lambda value: value,
        None,
        required=True,
        doc="the other store, which has all payloads too, named in the same way",
    )
    options = (PRIMARY, SECONDARY)

    def __init__(self) -> None:
        """:meth:`configure` opens the stores."""

    def supports(self, capability: type) -> bool:
        """Whether both stores implement a capability; False before :meth:`configure`."""
        return hasattr(self, "store") and super().supports(capability)

    def configure(self, config: Mapping[str, object]) -> None:
        """Open both stores. See :meth:`PayloadStore.configure`."""
        # Both stores may be of one kind, with different options.
        primary = ConfiguredStore.of(self.PRIMARY.read(config), config).open()
        try:
            secondary = ConfiguredStore.of(self.SECONDARY.read(config), config).open()
            try:
                # The other store has the payload too, whatever a store raises.
                both = Translated(primary), Translated(secondary)
                super().__init__(Mirror(*both, patience_ms=max(1, self.TIMEOUT.read(config) // 2)))
            except BaseException:
                secondary.close()
                raise
        except BaseException:
            primary.close()
            raise
