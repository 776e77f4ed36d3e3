"""``serde-chain stamp``: the relay that writes entry metadata, and the check of its output."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import click

from serde_chain.cli.output import Counting, say

__all__ = ["stamp"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--config", "file", type=_FILE, required=True, help="Client configuration (.toml or .properties).")
@click.option("--from", "source", help="Topic to read.")
@click.option("--to", "target", help="Topic to write, with at least as many partitions; nothing else may write to it.")
@click.option("--until-end", is_flag=True, help="Stop once all present records are relayed.")
@click.option("--check", "checked", metavar="TOPIC", help="Instead: look for gaps, repeats and time going backwards.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def stamp(  # noqa: PLR0917, click passes them by name
    file: Path, source: str | None, target: str | None, until_end: bool, checked: str | None, as_json: bool
) -> None:
    """Relay a topic, with time stamp and gap-free index in front of each value (PIP-70), exactly once.

    After a stop or a crash, the same command continues where it was. Exit code 1: --check reports a fault.
    """
    if checked is not None:
        if source or target:
            raise click.UsageError("--check cannot be combined with --from and --to")
        return _check(file, checked, as_json=as_json)
    if not source or not target:
        raise click.UsageError("set --from and --to, or --check")
    return _relay(file, source, target, until_end=until_end, as_json=as_json)


def _relay(file: Path, source: str, target: str, *, until_end: bool, as_json: bool) -> None:
    from serde_chain.stamp import stamp as relay

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Counting(f"{source} → {target}") as told:
        count = relay(file, source, target, until_end=until_end, stop=stop, progress=told)
    say({"relayed": count}, f"{count:,} records relayed", as_json=as_json)


def _check(file: Path, topic: str, *, as_json: bool) -> None:
    from serde_chain.stamp import check as check_topic

    with Counting(f"checking {topic}") as told:
        report = check_topic(file, topic, progress=told)
    content = {
        "records": report.records,
        "counts": dict(report.counts),
        "findings": [asdict(finding) for finding in report.findings],
    }
    lines = [*map(str, report.findings), f"{report.records:,} records, {sum(report.counts.values()):,} findings"]
    say(content, "\n".join(lines), as_json=as_json)
    if report.counts:
        sys.exit(1)
