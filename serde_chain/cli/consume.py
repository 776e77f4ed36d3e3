"""``serde-chain consume``: records of a topic, through the chains of a configuration."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from serde_chain.cli import arguments
from serde_chain.cli.arguments import example
from serde_chain.cli.layout import Layout
from serde_chain.cli.output import Throughput, are, complain, is_terminal, make_folder, number, position, printable
from serde_chain.cli.program import FAILED
from serde_chain.cli.selection import selecting, selection
from serde_chain.errors import ContextualError

_CHAINS = frozenset(f"{field}.deserializer{plural}" for field in ("key", "value") for plural in ("", "s"))


def _layout(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Layout | None:
    try:
        return None if value is None else Layout(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=example("consume client.toml images --last 3 --output ."))
@arguments.configured()
@selecting
@click.option("--count", type=click.IntRange(1), help="Stop after this number of records.")
@click.option("--follow", is_flag=True, help="Wait for further records, until Ctrl-C.  [default: stop at the end]")
@click.option("--raw", is_flag=True, help="The records as stored in the topic: no chain, and no download.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save each value as a file in this folder, and print its name.",
)
@click.option(
    "-f",
    "--format",
    "layout",
    callback=_layout,
    metavar="FORMAT",
    help="Print each record so, as kcat: %s value, %k key, %o offset, %p partition, %t topic, %T time, %h headers.",
)
@arguments.timeout(None, "the broker")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object per record.")
def consume(  # noqa: PLR0917, click passes them by name
    config: dict[str, object],
    topic: str,
    partition: int | None,
    offsets: tuple[int | None, int | None] | None,
    since: int | None,
    newest: int | None,
    key: str | None,
    count: int | None,
    follow: bool,
    raw: bool,
    output: Path | None,
    layout: Layout | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Print the values of TOPIC, read through chains.

    The chains are those of CONFIG (.toml or .properties), or of -X. No consumer group is joined, and no offset
    committed. A value is a line: text unchanged, objects as JSON, other bytes by their size. With --json, a record is
    an object, with {"base64": "..."} for bytes that are not text; serde-chain produce --records reads it back.

    Exit code 1: some records are undecodable; each is reported, and the others are printed.
    """
    from serde_chain.cli.decoding import Decoding
    from serde_chain.cli.records import batches, open_reader, places

    if layout is not None and (as_json or output is not None):
        raise click.UsageError("--format excludes --output and --json")
    wanted = selection(partition, offsets, since, newest, key, count)
    # --from finds the same records with and without --raw.
    chains = {name: setting for name, setting in config.items() if not (raw and name in _CHAINS)}
    if output is not None:
        make_folder(output)
    printing = _Printing(output, layout, as_json=as_json)
    with (
        open_reader(config, timeout) as reader,
        closing(Decoding(chains, lazy=output is not None)) as decoding,
        Throughput(topic, is_shown=not is_terminal()) as progress,
    ):
        if not raw:
            decoding.warn_of_other_side()
        where = places(reader, topic, wanted)
        for batch in batches(reader, topic, where, wanted, follow=follow):
            for message, error in decoding.read(batch):
                printing.print(message, error)
                progress(printing.count, printing.bytes)
    if printing.failed:
        complain(f"{printing.failed:,} of {number(printing.count, 'record')} {are(printing.failed)} undecodable")
        raise click.exceptions.Exit(FAILED)


class _Printing:
    """Prints records.

    Args:
        folder: Folder for the values; None prints them.
        layout: The format of a record.
        as_json: One object per record.

    Attributes:
        count: Number of printed records.
        bytes: Total size of their values, in the records or in files.
        failed: Number of undecodable records.
    """

    def __init__(self, folder: Path | None, layout: Layout | None, *, as_json: bool) -> None:
        self._folder, self._layout, self._as_json = folder, layout, as_json
        self.count = self.bytes = self.failed = 0

    def print(self, message: Any, error: Exception | None) -> None:
        """Print a record, or its error."""
        self.count += 1
        if error is not None:
            self._tell(message, str(error))
            return
        try:
            if self._folder is not None and message.value() is not None:
                self._save(message, self._folder)
            else:
                self._show(message)
        except ContextualError as failure:  # of a payload fetched only now
            if not failure.about_record:
                raise
            self._tell(message, str(failure))
        except (RecursionError, ValueError) as failure:
            place = f"topic={message.topic()}, partition={message.partition()}, offset={message.offset()}"
            self._tell(message, f"the value cannot be shown: {failure} [{place}]. Look at it with --raw")

    def _tell(self, message: Any, error: str) -> None:
        self.failed += 1
        if self._as_json:
            click.echo(json.dumps({**position(message), "error": error}))
        else:
            complain(error)

    def _save(self, message: Any, folder: Path) -> None:
        from serde_chain.cli.files import save
        from serde_chain.cli.outline import field_json

        saved = save(message, folder)
        self.bytes += saved.size
        if not self._as_json:
            click.echo("\n".join(map(str, (saved.path, *saved.images))))
            return
        content = {"key": field_json(message.key()), "file": str(saved.path), "bytes": saved.size}
        images = {"images": [str(path) for path in saved.images]} if saved.images else {}
        click.echo(json.dumps({**position(message), **content, **images}))

    def _show(self, message: Any) -> None:
        from serde_chain.cli.outline import as_line, field_json

        if self._layout is not None:
            data = self._layout(message)
            self.bytes += len(data)
            # A file gets the bytes; a terminal would interpret them.
            click.echo(printable(data.decode("utf-8", "replace")) if is_terminal() else data, nl=False)
            return
        if self._as_json:
            headers = [(name, field_json(value)) for name, value in message.headers() or ()]
            fields = {"key": field_json(message.key()), "headers": headers, "value": field_json(message.value())}
            line = json.dumps({**position(message), **fields})
        else:
            line = as_line(message.value())
        self.bytes += len(line)
        click.echo(line)
