"""``serde-chain replay``: puts dead letters back into their original topics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serde_chain.cli import arguments
from serde_chain.cli.arguments import FILE, example
from serde_chain.cli.output import CountProgress, number, say
from serde_chain.cli.program import stopped_by_signals

if TYPE_CHECKING:
    from serde_chain.clients.confluent.replay import Left


@click.command(epilog=example("replay client.toml tiles-dead --to tiles --dry-run"))
@click.argument("file", type=FILE, metavar="CONFIG")
@click.argument("topic", metavar="DEAD_LETTER_TOPIC")
@click.option("--to", multiple=True, metavar="TOPIC", help="A topic that may be written to; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of dead letters to read.  [default: all]")
@click.option("--now", is_flag=True, help="Give records the current time instead of their original timestamps.")
@arguments.timeout(None, "the broker")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def replay(  # noqa: PLR0917, click passes them by name
    file: Path,
    topic: str,
    to: tuple[str, ...],
    dry_run: bool,
    limit: int | None,
    now: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Put dead letters back into their original topics.

    They are read from DEAD_LETTER_TOPIC, with CONFIG (.toml or .properties), and written without the headers about
    the error, only to the topics named by --to. After a stop or a crash, the same command continues where it stopped.
    Exit code 1: some cannot be put back; they are listed and remain there: the next run starts after them.
    """
    from serde_chain.clients.confluent.replay import replay as put_back
    from serde_chain.config import load

    with stopped_by_signals() as stop, CountProgress(f"dead letters of {topic}") as progress:
        report = put_back(
            load(file),
            topic,
            to=to,
            dry_run=dry_run,
            limit=limit,
            keep_time=not now,
            stop=stop,
            progress=progress,
            timeout_s=timeout,
        )
    content = {"replayed": dict(report.replayed), "left": [left._asdict() for left in report.left], "dry_run": dry_run}
    lines = [f"left: {topic}, partition {left.partition}, offset {left.offset}: {left.why}" for left in report.left]
    lines += [f"{count:,} {_go(count, dry_run)} back in {name}" for name, count in report.replayed.items()]
    total = report.replayed.total()
    lines += ["nothing was written" if dry_run else f"{number(total, 'dead letter')} replayed"]
    lines += [f"{len(report.left):,} left"] if report.left else []
    if report.unnamed:
        lines.append(
            f"{report.unnamed.total():,} of these name topics without --to: {', '.join(sorted(report.unnamed))}"
        )
    elif report.left and not report.replayed:
        lines.append(f"none of these is a dead letter that can be put back: is {topic} the dead-letter topic?")
    if report.left and not dry_run:
        lines.append("the next run starts after them; to read them again, reset the position of the group:")
        lines += [_set_back(topic, partition, offset) for partition, offset in _first(report.left).items()]
    say(content, "\n".join(lines), as_json=as_json)
    if report.left:
        sys.exit(1)


def _first(left: list[Left]) -> dict[int, int]:
    """The first offset left, by partition."""
    return {each.partition: each.offset for each in reversed(left)}


def _set_back(topic: str, partition: int, offset: int) -> str:
    group = f"serde-chain-replay-{topic}"
    return (
        f"  kafka-consumer-groups.sh --bootstrap-server … --group {group} --topic {topic}:{partition} "
        f"--reset-offsets --to-offset {offset} --execute"
    )


def _go(count: int, dry_run: bool) -> str:
    return "would go" if dry_run else "is" if count == 1 else "are"
