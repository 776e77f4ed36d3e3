"""``serde-chain sweep`` and ``audit``: jobs of :mod:`serde_chain.spark.jobs`, in a Spark session of their own."""

from __future__ import annotations

import dataclasses
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from payload_stores.plugins import require
from serde_chain.cli.output import Telling, say
from serde_chain.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["audit", "sweep"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SHOWN: Final = 100
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _milliseconds(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    """Read a duration: a number with a unit."""
    match = re.fullmatch(r"(\d{1,12})(ms|s|m|h|d)", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a number with a unit: {', '.join(_UNITS)}")
    return int(match[1]) * _UNITS[match[2]]


def _job(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments and options that all jobs have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object, on the last line."),
        click.option(
            "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be given several times."
        ),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
        click.argument("topics", nargs=-1, required=True, metavar="TOPIC..."),
        click.argument("file", type=_FILE, metavar="CONFIG"),
    ):
        command = option(command)
    return command


@click.command()
@_job
@click.option(
    "--grace", callback=_milliseconds, default="24h", show_default=True, help="Younger payloads stay: 90m, 24h, 7d."
)
@click.option("--delete", is_flag=True, help="Delete the orphans.  [default: only count them]")
@click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the list of what is deleted.  [default: a new one in the current folder]",
)
def sweep(  # noqa: PLR0917, click passes them by name
    file: Path,
    topics: tuple[str, ...],
    master: str,
    conf: tuple[str, ...],
    as_json: bool,
    grace: int,
    delete: bool,
    manifest: Path | None,
) -> None:
    """Delete payloads that no record of the TOPICs refers to, out of the stores of CONFIG (.toml or .properties).

    Name all topics that may refer to them: mirrors and dead-letter topics too. Without --delete, nothing is deleted.
    Exit code 1: it could not be done, or not to the end; it is safe to run it again.
    """
    with Telling() as told, _session("serde-chain sweep", master, conf) as spark:
        from serde_chain.spark.jobs import sweep as run

        report = run(spark, file, topics, grace_ms=grace, delete=delete, manifest=manifest, progress=told)
    content = {**dataclasses.asdict(report), "manifest": None if report.manifest is None else str(report.manifest)}
    lines = [
        f"{report.live:,} payloads are in use, {report.listed:,} in the stores are older than the grace period",
        f"{report.orphans:,} of these {'is' if report.orphans == 1 else 'are'} in no record",
    ]
    if delete:
        lines.append(f"{report.deleted:,} deleted, {report.bytes:,} bytes")
        lines += [f"listed in {report.manifest}"] if report.manifest else []
    else:
        lines.append(f"nothing was deleted; --delete would free {report.bytes:,} bytes")
    say(content, "\n".join(lines), as_json=as_json)


@click.command()
@_job
@click.option(
    "--no-payloads", is_flag=True, help="Do not download payloads: only see that they are there, by their last byte."
)
def audit(
    file: Path, topics: tuple[str, ...], *, master: str, conf: tuple[str, ...], as_json: bool, no_payloads: bool
) -> None:
    """Check that all references in the TOPICs lead to their payloads, in the stores of CONFIG (.toml or .properties).

    Exit code 1: some do not, or it could not be done. The first problems are listed.
    """
    with Telling(), _session("serde-chain audit", master, conf) as spark:
        from serde_chain.spark.jobs import audit as run

        report = run(spark, file, topics, payloads=not no_payloads)
        count = report.problems.count()
        shown = [
            row.asDict() for row in report.problems.orderBy("topic", "partition", "offset").limit(_SHOWN).collect()
        ]
    lines = ["{topic}, partition {partition}, offset {offset}: {kind}: {message}".format(**row) for row in shown]
    lines += [f"{count - len(shown):,} more"] if count > len(shown) else []
    lines.append(f"{report.references:,} references, {count:,} problem{'' if count == 1 else 's'}")
    say({"references": report.references, "problems": count, "first": shown}, "\n".join(lines), as_json=as_json)
    if count:
        sys.exit(1)


@contextmanager
def _session(name: str, master: str, conf: tuple[str, ...]) -> Iterator[SparkSession]:
    """A Spark session with the connector: on this machine with its own log, or on a cluster."""
    require("pyspark", "spark")
    settings = _settings(conf)
    if not master.startswith("local"):
        with _session_on_cluster(name, master, settings) as spark:
            yield spark
        return
    from serde_chain.testing.services import ServiceError, spark_session

    with tempfile.NamedTemporaryFile(prefix="serde-chain-spark-", suffix=".log") as log:
        path = Path(log.name)
        try:
            with spark_session(name, {"spark.master": master, **settings}, log=path) as spark:
                yield spark
        except ServiceError as error:
            raise JobError(str(error)) from error
        except BaseException:
            # What Spark has said is gone with the file.
            sys.stderr.write(path.read_text(errors="replace"))
            raise


@contextmanager
def _session_on_cluster(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from serde_chain.spark import packages

    of_jars: dict[str, Any] = {"spark.jars.packages": ",".join(packages()), **settings}
    spark = SparkSession.builder.master(master).appName(name).config(map=of_jars).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--conf")
        settings[key] = value
    return settings
