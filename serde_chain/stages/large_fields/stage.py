"""Both directions of ``large-fields``: the stage that moves the payloads, and the chain that they pass first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from payload_stores.base import SupportsRetryCount
from payload_stores.options import Option
from serde_chain.base import Data, FieldType, Stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage, Side, StageItem
from serde_chain.chain import DeserializerChain, SerializerChain, close_all
from serde_chain.errors import ConfigError
from serde_chain.stages.large_fields.options import SERIALIZERS, STAGE, settings_of_stores
from serde_chain.transfer import TransferSlots

# It knows ids, routes and stores. Found through the catalogue, since stages do not import each other.
_MOVER: Final = "large-message"


class LargeFields(Stage):
    """The base of both directions.

    Attributes:
        authenticates_fields: See :class:`~serde_chain.base.MovesFields`.
    """

    moves_payloads: ClassVar[bool] = True
    authenticates_fields: bool = False
    _kind: ClassVar[type[SerializerChain | DeserializerChain]]
    _slots_key: ClassVar[str]
    _type: FieldType | None = None
    _chain: Any = None
    _mover: Any = None

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        """The stage's own keys, and those of the stores and of the stages for payloads."""
        options = list(cls.options)
        for stage in (_mover(config, cls._kind.side), *_payload_stages(config, cls._kind.side)):
            options += stage.options
        return tuple(dict.fromkeys(options))

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Open the payload stores, and make the stages for payloads.

        Raises:
            ConfigError: The chain is for keys, or a setting is wrong.
        """
        super().configure(config, is_key)
        if is_key:
            raise ConfigError(
                f"{STAGE} is not for keys: partitioning and compaction compare a key's bytes",
                hint="Move fields of the value",
            )
        self._chain = _payload_chain(config, self._kind)
        try:
            self._mover = _mover(settings_of_stores(config), self._kind.side).make()
        except BaseException:
            self.close()
            raise
        stages = () if self._chain is None else self._chain.stages
        self.authenticates_fields = any(isinstance(stage, Stage) and stage.authenticates for stage in stages)
        (in_flight,) = (option for option in self._mover.options if option.name == self._slots_key)
        self._slots = TransferSlots(in_flight.read(config), self._mover.timeout_ms)

    @property
    def timeout_ms(self) -> int:
        """Deadline of one upload or download, in ms."""
        timeout_ms: int = self._mover.timeout_ms
        return timeout_ms

    @property
    def worst_case_ms(self) -> int:
        """Longest duration of one store request in ms, by the store's own timeouts and retries."""
        time_ms: int = self._mover.worst_case_ms
        return time_ms

    @property
    def retries(self) -> int:
        """Number of requests repeated by its stores. See :class:`~payload_stores.SupportsRetryCount`."""
        return self._mover.retries if isinstance(self._mover, SupportsRetryCount) else 0

    def close(self) -> None:
        """Close the stores, and the stages for payloads."""
        close_all([self._chain, self._mover])


def _payload_chain(config: Mapping[str, object], kind: type[SerializerChain | DeserializerChain]) -> Any:
    """The chain for the payloads of fields; None if there is none.

    Raises:
        ConfigError: A stage is unknown, or is not from bytes to bytes.
    """
    configured = _payload_stages(config, kind.side)
    if kind.side is DESERIALIZE:
        configured.reverse()
    stages: list[Callable[..., Any]] = []
    try:
        stages += (stage.make() for stage in configured)
        return kind(stages, labels=[f"{SERIALIZERS.name}: {stage.label}" for stage in configured]) if stages else None
    except BaseException:
        close_all(stages)
        raise


def _mover(config: Mapping[str, object], side: Side) -> ConfiguredStage:
    return ConfiguredStage.of(StageItem.of(_MOVER), config, side, is_key=False)


def _payload_stages(config: Mapping[str, object], side: Side) -> list[ConfiguredStage]:
    """The stages for payloads, which are from bytes to bytes."""
    items = [StageItem.of(item, SERIALIZERS.name) for item in SERIALIZERS.read(config)]
    stages = ConfiguredStage.all_of(items, config, side, is_key=False)
    for at, stage in enumerate(stages):
        kind, item = stage.stage, stage.item
        if side is DESERIALIZE and item.options:
            # One list serves both sides, so an item may have options of the serializer alone.
            of_writer, of_reader = (_options(stage.in_direction(each).stage) for each in (SERIALIZE, DESERIALIZE))
            kept = {
                key: value
                for key, value in item.options.items()
                if any(option.matches(key) for option in of_reader)
                or not any(option.matches(key) for option in of_writer)
            }
            stages[at] = stage.with_own(kept)
        if kind is not None and (kind.takes is not Data.BYTES or kind.gives is not Data.BYTES or kind.moves_payloads):
            raise ConfigError(
                f"{item.label} is not for the payloads of fields: they are bytes, and stay in the store as bytes",
                hint="Name stages from bytes to bytes, such as zstd or encrypt",
                key=SERIALIZERS.name,
            )
    return stages


def _options(stage: Stage | type[Stage] | None) -> tuple[Option[Any], ...]:
    return () if stage is None else stage.options
