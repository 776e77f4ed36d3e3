"""The commands; each is a few lines around a function in its own module, imported on the call."""

from __future__ import annotations

import json
from pathlib import Path

import click

from serde_chain.cli.arguments import FILE, example
from serde_chain.cli.browse.command import browse
from serde_chain.cli.consume import consume
from serde_chain.cli.demo.command import demo
from serde_chain.cli.doctor.command import doctor
from serde_chain.cli.inspect_topic import inspect
from serde_chain.cli.jobs import audit, migrate, sweep
from serde_chain.cli.offload_server import offload_server
from serde_chain.cli.output import complain
from serde_chain.cli.produce import produce
from serde_chain.cli.program import FAILED, Program
from serde_chain.cli.replay import replay
from serde_chain.cli.services import services
from serde_chain.cli.stamp import stamp


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="serde-chain")
@click.option("--debug", is_flag=True, help="Show a traceback for errors.")
def commands(debug: bool) -> None:
    """Serializer chains and large messages for Kafka and Spark."""


@commands.command("check-config", epilog=example("check-config client.toml images"))
@click.argument("file", type=FILE)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def check_config(file: Path, topics: tuple[str, ...], as_json: bool) -> None:
    """Print FILE's chains, routes and stores, or its mistakes.

    FILE is a client's configuration (.toml or .properties). All mistakes in it are listed, with their lines. With
    TOPICs, also where their large messages go. Exit code 1: there are mistakes; with --json, one object each.
    """
    from serde_chain.cli.check_config import print_config

    mistakes = print_config(file, topics, as_json=as_json)
    for mistake in mistakes:
        if as_json:
            click.echo(json.dumps(mistake.content, default=str))
        else:
            complain(mistake.text)
    if mistakes:
        raise click.exceptions.Exit(FAILED)


commands.add_command(audit)
commands.add_command(browse)
commands.add_command(consume)
commands.add_command(demo)
commands.add_command(doctor)
commands.add_command(inspect)
commands.add_command(migrate)
commands.add_command(offload_server)
commands.add_command(produce)
commands.add_command(replay)
commands.add_command(services)
commands.add_command(stamp)
commands.add_command(sweep)
