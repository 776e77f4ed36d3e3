"""``serde-chain stamp``: the relay that writes entry metadata, and the check of its output."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from serde_chain.cli import arguments
from serde_chain.cli.arguments import FILE, example
from serde_chain.cli.output import CountProgress, say
from serde_chain.cli.program import stopped_by_signals


@click.command(epilog=example("stamp client.toml --from events --to events-stamped --until-end"))
@click.argument("file", type=FILE, metavar="CONFIG", required=False)
# The first version's spelling still works in scripts.
@click.option("--config", "named_file", type=FILE, hidden=True)
@click.option("--from", "source", help="Topic to read.")
@click.option("--to", "target", help="Topic to write, with at least as many partitions; nothing else may write to it.")
@click.option("--until-end", is_flag=True, help="Stop once all existing records are relayed.")
@click.option("--check", "checked", metavar="TOPIC", help="Instead: find gaps, repeats and time going backwards.")
@arguments.timeout(None, "the broker")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def stamp(  # noqa: PLR0917, click passes them by name
    file: Path | None,
    named_file: Path | None,
    source: str | None,
    target: str | None,
    until_end: bool,
    checked: str | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Relay a topic, with a timestamp and an index (PIP-70).

    They precede each value; the index has no gaps, and each record is written exactly once. CONFIG is a
    client's configuration (.toml or .properties).

    After a stop or a crash, the same command continues where it stopped. Exit code 1: --check reports a fault.
    """
    file = file or named_file
    if file is None:
        raise click.UsageError("Missing argument 'CONFIG'.")
    if checked is not None:
        if source or target:
            raise click.UsageError("--check cannot be combined with --from and --to")
        return _check(file, checked, timeout, as_json=as_json)
    if not source or not target:
        raise click.UsageError("set --from and --to, or --check")
    return _relay(file, source, target, timeout, until_end=until_end, as_json=as_json)


def _relay(file: Path, source: str, target: str, timeout: float | None, *, until_end: bool, as_json: bool) -> None:
    from serde_chain.config import load
    from serde_chain.stamp import stamp as relay

    with stopped_by_signals() as stop, CountProgress(f"{source} → {target}") as progress:
        count = relay(load(file), source, target, until_end=until_end, stop=stop, progress=progress, timeout_s=timeout)
    say({"relayed": count}, f"{count:,} records relayed", as_json=as_json)


def _check(file: Path, topic: str, timeout: float | None, *, as_json: bool) -> None:
    from serde_chain.stamp import check as check_topic

    with CountProgress(f"checking {topic}") as progress:
        report = check_topic(file, topic, progress=progress, timeout_s=timeout)
    content = {
        "records": report.records,
        "counts": dict(report.counts),
        "findings": [asdict(finding) for finding in report.findings],
    }
    lines = [*map(str, report.findings), f"{report.records:,} records, {sum(report.counts.values()):,} findings"]
    say(content, "\n".join(lines), as_json=as_json)
    if report.counts:
        sys.exit(1)
