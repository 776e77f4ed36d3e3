"""The commands; each is a few lines around a function of its own module, which is loaded when it is called."""

from __future__ import annotations

from pathlib import Path

import click

from serde_chain.cli.jobs import audit, sweep
from serde_chain.cli.offload_server import offload_server
from serde_chain.cli.replay import replay
from serde_chain.cli.stamp import stamp

__all__ = ["commands"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="serde-chain")
def commands() -> None:
    """Serializer chains and large messages for Kafka and Spark."""


@commands.command()
@click.option("--records", default=300, show_default=True, type=click.IntRange(1, 5000), help="Number of alerts.")
@click.option("--keep", is_flag=True, help="Keep the payloads and show where they are; of a folder.")
@click.option(
    "--store",
    default="local",
    show_default=True,
    type=click.Choice(["local", "kafka"]),
    help="Where the payloads go: a folder, or Kafka itself.",
)
@click.option(
    "--hop", is_flag=True, help="Instead: messages of hop, through a broker with users and an offload server."
)
def demo(records: int, keep: bool, store: str, hop: bool) -> None:
    """Run records through a real broker, a payload store and Spark."""
    if hop:
        from serde_chain.cli.demo_hop import run_hop_demo

        return run_hop_demo()
    from serde_chain.cli.demo import run_demo

    return run_demo(records, keep=keep, store=store)


@commands.command("check-config")
@click.argument("file", type=_FILE)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def check_config(file: Path, topics: tuple[str, ...], as_json: bool) -> None:
    """Print the chains that FILE (.toml or .properties) yields, or all mistakes in it.

    With TOPICs, also where their large messages go.
    """
    from serde_chain.cli.check_config import print_config

    mistakes = print_config(file, topics, as_json=as_json)
    for mistake in mistakes:
        click.echo(f"Error: {mistake}", err=True)
    if mistakes:
        raise click.exceptions.Exit(1)


@commands.command()
@click.option("--config", "file", type=_FILE, required=True, help="Client configuration (.toml or .properties).")
@click.option("--topic", required=True)
@click.option("--partition", default=0, show_default=True, type=click.IntRange(0))
@click.option("--offset", type=click.IntRange(0), help="First record to show.  [default: the first one present]")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1), help="Number of records.")
@click.option("--timeout", default=10.0, show_default=True, help="Longest wait for an answer, in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def inspect(  # noqa: PLR0917, click passes them by name
    file: Path, topic: str, partition: int, offset: int | None, count: int, timeout: float, as_json: bool
) -> None:
    """Show records as they are stored in the topic, without downloading payloads."""
    from serde_chain.cli.inspect_topic import print_records

    print_records(file, topic, partition, offset, count, timeout=timeout, as_json=as_json)


commands.add_command(audit)
commands.add_command(offload_server)
commands.add_command(replay)
commands.add_command(stamp)
commands.add_command(sweep)
