"""``serde-chain offload-server``: a server for hop's offload API, and its users."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click

from payload_stores.errors import ConfigError
from serde_chain.cli.arguments import FILE, example
from serde_chain.cli.output import say

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object per line.")
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)
# Characters of a token's digest: enough to tell tokens apart.
_SHOWN_DIGITS = 16


@click.group("offload-server")
def offload_server() -> None:
    """Serve hop's offload API over any payload store."""


@offload_server.command("add-user", epilog=example("offload-server add-user users.json alice"))
@click.argument("file", type=_NEW_FILE)
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input, one line.")
def add_user(file: Path, name: str, password_stdin: bool) -> None:
    """Add user NAME to FILE, or give NAME a new password.

    FILE keeps salted keys instead of passwords.
    """
    from payload_stores.offload_server import add_user as add

    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        raise click.UsageError(
            "Without a terminal to prompt for the password, use --password-stdin and pipe it in as one line."
        )
    is_new = add(file, name, password)
    click.echo(f"{name} {'was added to' if is_new else 'has a new password in'} {file}")


@offload_server.command("add-token", epilog=example("offload-server add-token tokens.toml pipeline"))
@click.argument("file", type=_NEW_FILE)
@click.argument("name")
def add_token(file: Path, name: str) -> None:
    """Create a Bearer token for user NAME, and print it.

    Its digest is added to FILE.
    """
    from payload_stores.offload_server.tokens import add_token as add

    token = add(file, name)
    click.echo("The token, which is not shown again:", err=True)
    click.echo(token)


@offload_server.command("list-users", epilog=example("offload-server list-users users.json"))
@click.argument("file", type=FILE)
@_JSON
def list_users(file: Path, as_json: bool) -> None:
    """Print the names of the users in FILE."""
    from payload_stores.offload_server.credentials import list_users as names

    for name in names(file):
        say({"name": name}, name, as_json=as_json)


@offload_server.command("remove-user", epilog=example("offload-server remove-user users.json bob"))
@click.argument("file", type=FILE)
@click.argument("name")
def remove_user(file: Path, name: str) -> None:
    """Remove user NAME from FILE.

    This takes effect with the next request.
    """
    from payload_stores.offload_server.credentials import remove_user as remove

    remove(file, name)
    click.echo(f"{name} was removed from {file}")


@offload_server.command("list-tokens", epilog=example("offload-server list-tokens tokens.toml"))
@click.argument("file", type=FILE)
@_JSON
def list_tokens(file: Path, as_json: bool) -> None:
    """Print the users of FILE's tokens.

    Each follows the beginning of its token's digest.
    """
    from payload_stores.offload_server.tokens import list_tokens as tokens

    for name, digest in tokens(file):
        shown = digest[: len("sha256:") + _SHOWN_DIGITS]
        say({"name": name, "digest": shown}, f"{shown}  {name}", as_json=as_json)


@offload_server.command("remove-token", epilog=example("offload-server remove-token tokens.toml sha256:3f1b"))
@click.argument("file", type=FILE)
@click.argument("which")
def remove_token(file: Path, which: str) -> None:
    """Remove one token, or all of a user, from FILE.

    WHICH is the user's name, or the beginning of the token's digest: sha256:…. This takes effect with the next request.
    """
    from payload_stores.offload_server.tokens import remove_token as remove

    number = remove(file, which)
    click.echo(f"{number} {'token was' if number == 1 else 'tokens were'} removed from {file}")


@offload_server.command(
    epilog=example(
        "offload-server run --store local --config store.toml --data data --credentials users.json --acl-file acl.toml"
    )
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0: a free one."
)
@click.option("--store", required=True, help="Payload store: local, s3, or a dotted path.")
@click.option("--config", "file", type=FILE, required=True, help="The store's keys (.toml or .properties).")
@click.option("--shared-store", is_flag=True, help="Other programs also write to the store's folder or prefix.")
@click.option("--data", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the index.")
@click.option("--credentials", type=FILE, required=True, help="Users, as written by add-user.")
@click.option("--tokens", type=FILE, help="Bearer tokens, as written by add-token.")
@click.option("--tokens-over-http", is_flag=True, help="Accept tokens without TLS, where any listener can copy them.")
@click.option("--acl-file", type=FILE, help="Permissions (TOML), instead of the broker's ACLs.")
@click.option("--broker-config", type=FILE, help="The server's Kafka client, for ACLs and --announce.")
@click.option("--super-user", "super_users", multiple=True, help="With the broker's ACLs: a user with all permissions.")
@click.option("--max-bytes", default=1 << 30, show_default=True, type=click.IntRange(1), help="Largest upload.")
@click.option(
    "--max-bytes-per-user",
    type=click.IntRange(1),
    help="Maximum bytes that a user may upload in 24 hours.  [default: unlimited]",
)
@click.option(
    "--reserve-bytes",
    default=256 << 20,
    show_default=True,
    type=click.IntRange(0),
    help="Disk space that uploads leave free, for --data and the store local.",
)
@click.option(
    "--proxy", "proxies", multiple=True, help="IP address of a reverse proxy, exempt from the limit per address."
)
@click.option("--tls-cert", type=FILE, help="Certificate with its chain (PEM).")
@click.option("--tls-key", type=FILE, help="Its private key (PEM).")
@click.option("--url", help="The server's URL for clients, if it differs from its address.")
@click.option("--announce", is_flag=True, help="Write the URL to the broker's topic sys.metadata.")
def run(file: Path, broker_config: Path | None, tls_cert: Path | None, tls_key: Path | None, **options: Any) -> None:
    """Run the server until SIGINT or SIGTERM. SIGHUP reloads users, tokens, permissions and certificates."""
    from payload_stores.offload_server import Tls, serve
    from payload_stores.offload_server.requests import is_loopback
    from serde_chain.config import load

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("set --tls-cert and --tls-key together")
    tls = Tls(tls_cert, tls_key) if tls_cert and tls_key else None
    broker = None if broker_config is None else load(broker_config)
    if options["announce"] and broker is None:
        raise click.UsageError("--announce requires --broker-config")
    if options["tokens"] and tls is None and not options["tokens_over_http"] and not is_loopback(options["host"]):
        raise click.UsageError(
            "tokens are not accepted over plain http: set --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy "
            "with TLS, or allow it with --tokens-over-http"
        )
    # Only the owner may read files written by this process, including payloads in a local folder.
    os.umask(0o077)
    app = _app(load(file), broker, options)
    with closing(app), suppress(KeyboardInterrupt):  # the regular end, after an orderly shutdown
        serve(
            app,
            host=options["host"],
            port=options["port"],
            tls=tls,
            ready=_ready(broker, options),
            reload=app.reload,
            proxies=options["proxies"],
        )


def _app(config: dict[str, object], broker: dict[str, object] | None, options: dict[str, Any]) -> Any:
    from payload_stores import open_store
    from payload_stores.local import LocalStore
    from payload_stores.offload_server import (
        Authorizer,
        BrokerAcls,
        FileAcls,
        FileCredentials,
        FileTokens,
        Limits,
        OffloadApp,
    )

    authorizer: Authorizer
    if options["acl_file"] is not None:
        authorizer = FileAcls(options["acl_file"])
    elif broker is not None:
        authorizer = BrokerAcls(broker, super_users=options["super_users"])
    else:
        raise click.UsageError("set --broker-config or --acl-file")
    credentials = FileCredentials(options["credentials"])
    tokens = None if options["tokens"] is None else FileTokens(options["tokens"])
    store = open_store(options["store"], config)
    try:
        return OffloadApp(
            store,
            options["data"],
            credentials,
            authorizer,
            tokens=tokens,
            limits=Limits(
                max_bytes=options["max_bytes"],
                proxies=frozenset(options["proxies"]),
                user_bytes_per_day=options["max_bytes_per_user"],
                reserve_bytes=options["reserve_bytes"],
            ),
            disks=[store.path] if isinstance(store, LocalStore) else [],
            shared_store=options["shared_store"],
            tokens_over_http=options["tokens_over_http"],
        )
    except ConfigError:
        store.close()
        raise


def _ready(broker: dict[str, object] | None, options: dict[str, Any]) -> Callable[[str], None]:
    def ready(url: str) -> None:
        public = (options["url"] or url).rstrip("/")
        if options["announce"] and broker is not None:
            from payload_stores.offload_server.announcement import announce

            written = announce(broker, public)
            click.echo(f"{public} {'is now' if written else 'was already'} announced on sys.metadata")
        click.echo(f"Listening on {url}")

    return ready
