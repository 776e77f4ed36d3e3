"""``serde-chain produce``: files and lines as records, through the chains of a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from serde_chain.cli import arguments, inputs
from serde_chain.cli.arguments import PARTITION, example
from serde_chain.cli.inputs import InputError, InputRecord, StandardInput
from serde_chain.cli.output import Throughput, complain, number, say
from serde_chain.cli.program import FAILED
from serde_chain.errors import BytesExpectedError, SerializationError

if TYPE_CHECKING:
    from serde_chain import Producer

_PATH = click.Path(exists=True, allow_dash=True, path_type=Path)
_CREATION_MS: Final = 5_000
_POLL_S: Final = 0.5
_TOLD_ERRORS: Final = 10
_BYTES_IN_JSON: Final = 'JSON has no bytes: write {"base64": "…"}'
_NO_TOPIC = "Check the topic's name, or create it"
_TOO_LARGE = "End the value chain with large-message, or raise message.max.bytes of the client and the topic"
# Hints for librdkafka's errors.
_HINTS: Final = {
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "_UNKNOWN_PARTITION": "Choose one of the topic's partitions, which are counted from 0",
    "MSG_SIZE_TOO_LARGE": _TOO_LARGE,
}
# For the user's own producer: a transaction would have to be begun, and a journal belongs to one producer at a time.
_NOT_OURS: Final = frozenset({"transactional.id", "large.message.journal.path"})


def _header(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Parse headers: ``name=value``."""
    headers = []
    for value in values:
        name, equals, content = value.partition("=")
        if not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        headers.append((name, content.encode()))
    return headers


@click.command(epilog=example("produce client.toml images --name-as-key --header band=g m51.fits"))
@arguments.configured("[PATH]...")
@click.option("--lines", "as_lines", is_flag=True, help="Each line is a record; the default without a PATH.")
@click.option("--records", "as_records", is_flag=True, help="Each line is a record as printed by consume --json.")
@click.option("--key", help="Key of all records.")
@click.option("--key-separator", metavar="TEXT", help="The text between key and value in a line.")
@click.option("--name-as-key", is_flag=True, help="The key is the file's name, or its path in a folder.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_header,
    metavar="NAME=VALUE",
    help="A header of all records; may be given several times.",
)
@click.option("--partition", type=PARTITION, help="Partition of all records.  [default: the key's]")
@arguments.timeout(None, "the broker to answer")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object, on the last line.")
def produce(  # noqa: PLR0917, click passes them by name
    config: dict[str, object],
    topic: str,
    words: tuple[str, ...],
    as_lines: bool,
    as_records: bool,
    key: str | None,
    key_separator: str | None,
    name_as_key: bool,
    headers: list[tuple[str, bytes]],
    partition: int | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Send files or lines to TOPIC, through chains.

    The content of each PATH is a record, encoded by the chains of CONFIG (.toml or .properties). A folder stands for
    all files in it, and - for standard input. Chains that begin with a stage for objects, such as avro and json, get
    the content parsed as JSON; those that begin with string get its text. If large-message comes first, or after
    bytes, files are read during the upload, in constant memory.

    Exit code 1: a record was not sent. The command stops at the first record that cannot be encoded; those before it
    are sent, as they are after Ctrl-C.
    """
    from serde_chain.config import resolve

    paths = tuple(arguments.path_of(word, _PATH, "PATH") for word in words)
    by_line = as_lines or as_records or not paths
    if name_as_key and by_line:
        raise click.UsageError("--name-as-key requires one record per file")
    if key_separator is not None and (as_records or not by_line):
        raise click.UsageError("--key-separator requires --lines")
    if sum((key is not None, name_as_key, key_separator is not None)) > 1:
        raise click.UsageError("--key, --key-separator and --name-as-key exclude each other")
    chains = resolve({name: setting for name, setting in config.items() if name not in _NOT_OURS})
    at = -1 if partition is None else partition
    values, keys = inputs.ChainInput(chains), inputs.ChainInput(chains, is_key=True)
    if as_records:
        items = inputs.records(paths, values, keys)
    elif by_line:
        items = inputs.lines(paths, values, keys, key_separator)
    else:
        items = inputs.files(paths, values, names=keys if name_as_key else None)
    own_key = None if key is None else keys.of_content(key.encode())
    with _producer(chains.settings, topic, timeout) as producer, Throughput(topic) as progress:
        sending = _Sending(producer, topic, progress)
        try:
            for item in items:
                sending.send(item, own_key if key is not None else item.key, [*item.headers, *headers], at)
        finally:
            # Records already read are sent, whatever ended the reading, including Ctrl-C.
            producer.flush()
            say(sending.report, sending.text, as_json=as_json)
    if sending.counts["failed"]:
        raise click.exceptions.Exit(FAILED)


def _producer(config: Mapping[str, Any], topic: str, timeout: float | None) -> Producer:
    """A producer, once the broker has answered: a record for an absent broker would wait for five minutes."""
    from serde_chain import Producer
    from serde_chain.cli.records import open_reader
    from serde_chain.clients.confluent.partitions import log_error

    with open_reader(config, timeout) as reader:
        is_there = reader.is_there(topic)
    # A broker that creates topics has done so by then; the client would wait for another one for half a minute.
    own = {} if is_there else {"topic.metadata.propagation.max.ms": _CREATION_MS}
    return Producer({"error_cb": log_error, **own, **config})


class _Sending:
    """Sends records, and counts them as they are delivered.

    Args:
        producer: Sends them.
        topic: The topic.
        progress: Called with the number and bytes of delivered records.

    Attributes:
        counts: Records ``sent`` and ``failed``, and the content ``bytes`` of those sent.
    """

    def __init__(self, producer: Producer, topic: str, progress: Callable[[int, int], None]) -> None:
        self._producer, self._topic, self._progress = producer, topic, progress
        self.counts: Counter[str] = Counter()

    @property
    def report(self) -> dict[str, Any]:
        """The counts, for scripts."""
        return {"topic": self._topic, **{name: self.counts[name] for name in ("sent", "failed", "bytes")}}

    @property
    def text(self) -> str:
        """The counts, for people."""
        sent, failed, size = (self.counts[name] for name in ("sent", "failed", "bytes"))
        failures = f", {failed:,} failed" if failed else ""
        return f"{number(sent, 'record')}, {size:,} bytes, sent to {self._topic}{failures}"

    def send(self, item: InputRecord, key: Any, headers: list[Any], partition: int) -> None:
        """Pass a record to the producer, once it has room.

        Raises:
            InputError: The record cannot be encoded, or the client refuses it.
        """
        from confluent_kafka import KafkaException

        value = item.value
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition=partition,
                    headers=headers,
                    timestamp=item.timestamp_ms,
                    on_delivery=lambda error, _message: self._delivered(item, error),
                )
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as error:
                refused = error.args[0]
                raise InputError(refused.str(), hint=_HINTS.get(refused.name()), file=item.place) from error
            except (TypeError, ValueError) as error:  # a key without a chain
                raise InputError(str(error), file=item.place) from error
            except SerializationError as error:
                # A store or format that requires the whole payload is not the file's fault.
                if not isinstance(value, Path) or error.about_record:
                    hint = _BYTES_IN_JSON if isinstance(error, BytesExpectedError) else None
                    raise InputError(str(error), hint=hint, file=item.place) from error
                value = value.read_bytes()
            else:
                self._producer.poll(0)
                return

    def _delivered(self, item: InputRecord, error: Any) -> None:
        self.counts["sent" if error is None else "failed"] += 1
        if error is None:
            self.counts["bytes"] += item.size.count if isinstance(item.size, StandardInput) else item.size
        elif self.counts["failed"] <= _TOLD_ERRORS:
            hint = _HINTS.get(error.name())
            complain(f"{item.place}: {error.str()}{'. ' + hint if hint else ''}")
        self._progress(self.counts["sent"], self.counts["bytes"])
