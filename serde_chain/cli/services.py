"""The command ``serde-chain services``: trial servers on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from serde_chain.cli.arguments import example
from serde_chain.cli.program import stopped_by_signals

if TYPE_CHECKING:
    from serde_chain.testing.services import KafkaBroker
    from serde_chain.testing.services.process import Service

_PORT: Final = click.IntRange(1, 65_534)
_BUCKET: Final = "payloads"
_USER: Final = "alice"
_METADATA: Final = "sys.metadata"
_TICK_S: Final = 0.5


@click.command(epilog=example("services images", "services images alerts --port 19092 --registry 8081"))
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--port", default=9092, show_default=True, type=_PORT, help="The broker's port; with users, the next one."
)
@click.option("--registry", type=_PORT, metavar="PORT", help="Also a schema registry, at this port.")
@click.option("--s3", type=_PORT, metavar="PORT", help=f"Also an S3 server with the bucket {_BUCKET}.")
@click.option("--offload-server", type=_PORT, metavar="PORT", help="Also hop's offload API, announced by the broker.")
@click.option(
    "--folder",
    default="serde-chain-services",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the data stays for the next start.",
)
def services(  # noqa: PLR0917, click passes them by name
    topics: tuple[str, ...],
    port: int,
    registry: int | None,
    s3: int | None,
    offload_server: int | None,
    folder: Path,
) -> None:
    """Start a trial Kafka broker with TOPICs, until Ctrl-C.

    For trials on this machine: it listens on 127.0.0.1 only. Topics, records, schemas and payloads stay in a
    folder, and the next start has them again. The first start downloads Kafka.
    """
    from serde_chain.testing.services import KafkaBroker, OffloadServer, S3Server, SchemaRegistry
    from serde_chain.testing.services.data_folder import lock_folder, unlock
    from serde_chain.testing.services.java import MINIMUM_VERSION, REGISTRY_VERSION, any_java

    any_java(REGISTRY_VERSION if registry else MINIMUM_VERSION)
    kafka = {"Kafka": port, "Kafka with users": port + 1}
    with ExitStack() as stack:
        # Of this process alone: servers that outlive it for a moment are waited for.
        stack.callback(unlock, lock_folder(folder, "trial", waits=False))
        _check({**kafka, "schema registry": registry, "S3": s3, "offload": offload_server}, folder)
        click.echo("Starting …", err=True)
        broker = stack.enter_context(KafkaBroker(port=port, folder=folder / "kafka"))
        running: list[Service] = [broker]
        for topic in (*topics, *([_METADATA] if offload_server else [])):
            _create(broker, topic)
        broker.allow(_USER, ["READ"], group="*")
        listed = ", ".join(_topics(broker)) or "(none)"
        _say("Kafka", f"{broker.bootstrap_servers}, with the topics {listed}")
        login = f"SASL_PLAINTEXT, SCRAM-SHA-512, user {_USER}, password {broker.users[_USER]}"
        _say("Kafka with users", f"{broker.sasl_bootstrap_servers} ({login})")
        if registry:
            schemas = stack.enter_context(SchemaRegistry(port=registry, folder=folder / "registry"))
            running.append(schemas)
            _say("Schema registry", schemas.url)
        if s3:
            objects = stack.enter_context(S3Server(port=s3, folder=folder / "s3"))
            objects.create_bucket(_BUCKET)
            _say(
                "S3",
                "".join(f"\n  {key} = {value}" for key, value in objects.store_config(_BUCKET).items()),
            )
        if offload_server:
            kept = folder / "offload-server"
            endpoint = stack.enter_context(
                OffloadServer(broker=broker.client_config(), announce=True, port=offload_server, folder=kept)
            )
            running.append(endpoint)
            _say("Offload server", f"{endpoint.url} (announced in {_METADATA})")
        with stopped_by_signals() as stop:
            click.echo(f"Ctrl-C ends it; the data stays in {folder.absolute()}")
            while not stop.wait(_TICK_S):
                for server in running:
                    if not server.running:
                        message = f"the {server.name} server has ended: see {folder}/*/{server.name}.log"
                        raise click.ClickException(message)


def _check(ports: Mapping[str, int | None], folder: Path) -> None:
    """Refuse ports and folders before the first server is started."""
    from serde_chain.testing.services.data_folder import wait_for_folders
    from serde_chain.testing.services.ports import require_free

    taken: dict[int, str] = {}
    for name, port in ports.items():
        if port is not None:
            if port in taken:
                message = f"the servers {taken[port]} and {name} have the same port, {port}"
                raise click.UsageError(message)
            taken[port] = name
    # Servers of a killed command end by themselves.
    wait_for_folders(folder)
    for port, name in taken.items():
        require_free(port, name)


def _say(name: str, what: str) -> None:
    click.echo(f"{name}: {what}".replace("127.0.0.1", "localhost"))


def _create(broker: KafkaBroker, topic: str) -> None:
    """Create a topic, unless an earlier start has; the user may do everything with it."""
    if topic not in _topics(broker):
        broker.create_topic(topic)
    broker.allow(_USER, ["ALL"], topic=topic)


def _topics(broker: KafkaBroker) -> list[str]:
    return sorted(name for name in broker.admin().list_topics(timeout=30).topics if not name.startswith("__"))
