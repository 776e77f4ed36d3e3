"""The command ``serde-chain demo``."""

from __future__ import annotations

import json

import click

from serde_chain.cli.arguments import example


@click.command(epilog=example("demo", "demo --store kafka"))
@click.option("--records", default=300, show_default=True, type=click.IntRange(1, 5000), help="Number of alerts.")
@click.option("--keep", is_flag=True, help="Keep the payloads, and show where they are; with --store local only.")
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object, at the end.")
def demo(records: int, keep: bool, store: str, hop: bool, as_json: bool) -> None:
    """Run records through a real broker, a store and Spark."""
    if keep and (hop or store != "local"):
        raise click.UsageError("--keep requires --store local; other payloads are removed with the demo's servers")
    from serde_chain.cli.demo.steps import make_console

    console = make_console(is_quiet=as_json)
    if hop:
        from serde_chain.cli.demo.hop import run_hop_demo

        report = run_hop_demo(console)
    else:
        from serde_chain.cli.demo.alerts import run_demo

        report = run_demo(console, records, keep=keep, store=store)
    if as_json:
        click.echo(json.dumps(report))
