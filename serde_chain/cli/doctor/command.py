"""The command ``serde-chain doctor``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from serde_chain.cli import arguments
from serde_chain.cli.arguments import example
from serde_chain.cli.findings import Level, rows
from serde_chain.cli.output import Screen, number, say
from serde_chain.cli.program import FAILED


@click.command(epilog=example("doctor client.toml images --write", "doctor client.toml images --strict --json"))
@arguments.configured(several=True, by_line=True)
@click.option(
    "--write", is_flag=True, help="Write a tiny payload to each store, read and delete it; ask whether schemas fit."
)
@click.option("--strict", is_flag=True, help="Warnings are errors: exit code 1.")
@click.option("--quiet", is_flag=True, help="Do not print successful checks.")
@arguments.timeout(10.0, "one answer")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object per check.")
def doctor(  # noqa: PLR0917, click passes them by name
    config: dict[str, object] | Path,
    topics: tuple[str, ...],
    write: bool,
    strict: bool,
    quiet: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Find mismatches between CONFIG and a cluster.

    Compares CONFIG (.toml or .properties) with the broker, the TOPICs, their stores and the registry, and reads
    the newest records. Nothing is changed. With --write, the permissions of a configuration with serializers are
    tested: a tiny payload is written to each store, read and deleted; no record is produced, and no schema
    registered. Exit code 1: there is an error; with --strict, also for a warning.
    """
    from serde_chain.cli.doctor.examine import examine

    counts: Counter[str] = Counter()
    screen = Screen()
    for check in examine(config, topics, timeout_s=timeout, tries=write):
        counts[check.level] += 1
        if not (quiet and check.level is Level.OK):
            say(check.content, str(check), as_json=as_json)
            if check.records and not as_json:
                screen.print(rows(check.records))
    if not as_json:
        wrong = ", ".join(number(counts[level], level) for level in (Level.WARNING, Level.ERROR))
        click.echo(f"{counts[Level.OK]:,} ok, {wrong}")
    if counts[Level.ERROR] or (strict and counts[Level.WARNING]):
        raise click.exceptions.Exit(FAILED)
