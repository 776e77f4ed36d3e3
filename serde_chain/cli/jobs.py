"""``serde-chain sweep``, ``audit`` and ``migrate``: the jobs of :mod:`serde_chain.jobs`, with and without Spark."""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from payload_stores.plugins import require
from serde_chain.cli.arguments import FILE, example, settings
from serde_chain.cli.output import Status, are, number, printable, say
from serde_chain.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serde_chain.jobs.sweeping import Progress

_SHOWN: Final = 100
_MOST_LOCAL: Final = 10_000_000
_AUTO, _LOCAL, _SPARK = "auto", "local", "spark"
_ADVICE: Final = "Check --master and --conf, and Spark's output before this line"
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _milliseconds(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    """Read a duration: a number with a unit."""
    match = re.fullmatch(r"(\d{1,12})(ms|s|m|h|d)", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a number with a unit: {', '.join(_UNITS)}")
    return int(match[1]) * _UNITS[match[2]]


def _job(command: Callable[..., None]) -> Callable[..., None]:
    """The options of all jobs, and their exit code."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object, on the last line."),
        click.option(
            "--conf",
            multiple=True,
            callback=settings,
            metavar="KEY=VALUE",
            help="A Spark setting; may be given several times.",
        ),
        click.option("--master", help="Spark's master.  [default: local[*]]"),
        click.option(
            "--engine",
            type=click.Choice([_AUTO, _LOCAL, _SPARK]),
            default=_AUTO,
            show_default=True,
            help="local: this process alone. spark: Spark. auto: spark with --master or --conf, or for more than "
            f"{_MOST_LOCAL:,} records if pyspark is installed; otherwise local. The result is the same.",
        ),
    ):
        command = option(command)
    return command


def _on_topics(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments of jobs on the topics of one configuration."""
    for argument in (
        click.argument("topics", nargs=-1, required=True, metavar="TOPIC..."),
        click.argument("file", type=FILE, metavar="CONFIG"),
    ):
        command = argument(command)
    return command


@click.command(epilog=example("sweep client.toml alerts alerts-dead"))
@_on_topics
@_job
@click.option(
    "--grace", callback=_milliseconds, default="24h", show_default=True, help="Keep younger payloads: 90m, 24h, 7d."
)
@click.option("--delete", is_flag=True, help="Delete the orphans.  [default: only count them]")
@click.option(
    "--tombstones",
    is_flag=True,
    help="Delete also payloads of keys that were deleted: in compacted topics, the records before a tombstone older "
    "than --grace do not count.",
)
@click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the list of deleted payloads.  [default: a new one in the current folder]",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="A folder shared by Spark's driver and executors, so that the sweep survives executors that end; implies "
    "--engine spark.",
)
@click.option(
    "--deletes",
    "deletes",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Deletions at a time; of up to a thousand payloads each.",
)
def sweep(  # noqa: PLR0917, click passes them by name
    file: Path,
    topics: tuple[str, ...],
    engine: str,
    master: str | None,
    conf: dict[str, str],
    as_json: bool,
    grace: int,
    delete: bool,
    tombstones: bool,
    manifest: Path | None,
    checkpoint: str | None,
    deletes: int,
) -> None:
    """Delete payloads that no record refers to.

    The payloads are those in the stores of CONFIG (.toml or .properties), and the records those of the TOPICs. Name all
    topics that may refer to them, including mirrors and dead-letter topics. Without --delete, nothing is deleted.
    Exit code 1: the sweep failed or is incomplete; it is safe to run it again.
    """
    if checkpoint is not None:
        if engine == _LOCAL:
            raise click.UsageError("--checkpoint is for --engine spark: a local sweep keeps its listing in TMPDIR.")
        engine = _SPARK
    options: dict[str, Any] = {
        "grace_ms": grace,
        "delete": delete,
        "manifest": manifest,
        "deletes_in_flight": deletes,
        "tombstones": tombstones,
    }
    started = time.monotonic()
    if _is_local(engine, master, conf, file, topics):
        from serde_chain import jobs

        with Status("connecting") as progress:
            report = jobs.sweep(file, topics, progress=progress, **options)
    else:
        with _session("serde-chain sweep", master, conf) as (spark, progress):
            from serde_chain.spark.jobs import sweep as run

            report = run(spark, file, topics, progress=progress, checkpoint=checkpoint, **options)
    counts = dataclasses.asdict(report)
    if not tombstones:
        del counts["dead_keys"]
    content = {
        "topics": topics,
        **counts,
        "manifest": None if report.manifest is None else str(report.manifest),
        "seconds": round(time.monotonic() - started, 1),
    }
    lines = [
        (
            f"{number(report.live, 'payload')} {are(report.live)} in use, "
            f"{report.listed:,} in the stores {are(report.listed)} older than the grace period"
        ),
        f"{report.orphans:,} of these {are(report.orphans)} in no {'other ' if tombstones else ''}record",
    ]
    if tombstones:
        dead = number(report.dead_keys, "key")
        lines.insert(0, f"{dead} {are(report.dead_keys)} deleted by a tombstone older than the grace period")
    if delete:
        lines.append(f"{report.deleted:,} deleted, {report.bytes:,} bytes")
        lines += [f"listed in {report.manifest}"] if report.manifest else []
    else:
        lines.append(f"nothing was deleted; --delete would free {report.bytes:,} bytes")
    say(content, "\n".join(lines), as_json=as_json)


@click.command(epilog=example("audit client.toml alerts"))
@_on_topics
@_job
@click.option(
    "--no-payloads", is_flag=True, help="Do not download payloads: only read the last byte to see that they exist."
)
def audit(
    file: Path,
    topics: tuple[str, ...],
    *,
    engine: str,
    master: str | None,
    conf: dict[str, str],
    as_json: bool,
    no_payloads: bool,
) -> None:
    """Check that all references lead to their payloads.

    The references are those in the TOPICs, and the payloads those in the stores of CONFIG (.toml or .properties).
    Exit code 1: some references lead nowhere, or the audit failed. The first problems are listed.
    """
    if _is_local(engine, master, conf, file, topics):
        from serde_chain import jobs

        with Status("reading records"):
            found = jobs.audit(file, topics, payloads=not no_payloads)
            references, count = found.references, len(found.problems)
            shown = [dataclasses.asdict(problem) for problem in islice(found.problems, _SHOWN)]
    else:
        with _session("serde-chain audit", master, conf) as (spark, _):
            from serde_chain.spark.jobs import audit as run

            report = run(spark, file, topics, payloads=not no_payloads)
            references, count = report.references, report.problems.count()
            rows = report.problems.orderBy("topic", "partition", "offset", "reference").limit(_SHOWN).collect()
            shown = [row.asDict() for row in rows]
    lines = [
        "{topic}, partition {partition}, offset {offset}: {kind}: {message}".format(**row)
        + (f" [{row['reference']}]" if row["reference"] else "")
        for row in shown
    ]
    lines += [f"{count - len(shown):,} more"] if count > len(shown) else []
    lines.append(f"{number(references, 'reference')}, {number(count, 'problem')}")
    say({"references": references, "problems": count, "first": shown}, "\n".join(lines), as_json=as_json)
    if count:
        sys.exit(1)


@click.command(epilog=example("migrate client.toml store.toml alerts alerts-new"))
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@click.argument("topic")
@click.argument("target_topic")
@_job
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Folder for the progress; for Spark, shared by its driver and executors.  "
    "[default: serde-chain-migrate-TOPIC-TARGET_TOPIC in the current folder]",
)
def migrate(
    source: Path,
    target: Path,
    topic: str,
    target_topic: str,
    *,
    checkpoint: str | None,
    engine: str,
    master: str | None,
    conf: dict[str, str],
    as_json: bool,
) -> None:
    """Copy a topic, and its payloads to another store.

    SOURCE and TARGET are client configurations (.toml or .properties). The records of TOPIC go to TARGET_TOPIC, and
    their payloads from the stores of SOURCE to that of TARGET. Run again with the same checkpoint, the command
    continues where it stopped, and writes no record twice. Exit code 1: the migration failed or is incomplete; the
    error says why.
    """
    folder = checkpoint or str(Path(f"serde-chain-migrate-{topic}-{target_topic}").absolute())
    if engine == _AUTO and "://" in folder:  # of a file system that only Spark can write
        engine = _SPARK
    if _is_local(engine, master, conf, source, topic):
        from serde_chain import jobs

        with Status("connecting") as progress:
            report = jobs.migrate(source, target, topic, target_topic, checkpoint=folder, progress=progress)
    else:
        with _session("serde-chain migrate", master, conf) as (spark, progress):
            from serde_chain.spark.jobs import migrate as run

            report = run(spark, source, target, topic, target_topic, checkpoint=folder, progress=progress)
    lines = [f"{number(report.records, 'record')} copied, {number(report.payloads, 'payload')} moved"]
    lines += [f"{number(report.skipped, 'undecodable record')} skipped"] if report.skipped else []
    say({**dataclasses.asdict(report), "checkpoint": folder}, "\n".join(lines), as_json=as_json)


def _is_local(engine: str, master: str | None, conf: dict[str, str], file: Path, topics: str | Sequence[str]) -> bool:
    """Whether a job runs without Spark.

    Args:
        engine: The option.
        master: The option.
        conf: The option.
        file: The configuration of the topics.
        topics: The topics to read.
    """
    for_spark = master is not None or bool(conf)
    if engine == _LOCAL and for_spark:
        raise click.UsageError("--master and --conf are for --engine spark.")
    if engine != _AUTO or for_spark:
        return engine == _LOCAL
    if find_spec("pyspark") is None:
        return True
    from serde_chain.jobs.topic_bounds import count_records

    return count_records(file, topics) <= _MOST_LOCAL


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


@contextmanager
def _session(name: str, master: str | None, conf: dict[str, str]) -> Iterator[tuple[SparkSession, Progress]]:
    """A Spark session with the connector, and the function that shows a job's activity."""
    with Status("starting Spark") as progress, _spark(name, master or "local[*]", conf) as spark:
        yield spark, progress


@contextmanager
def _spark(name: str, master: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    """A Spark session: on this machine with a separate log, or on a cluster."""
    require("pyspark", "spark")
    # py4j prints tracebacks of calls interrupted by Ctrl-C, partly to the root logger. Relevant errors are raised too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    if not master.startswith("local"):
        with _session_on_cluster(name, master, conf) as spark:
            yield spark
        return
    from serde_chain.testing.services import ServiceError, ServiceStartError, spark_session

    with tempfile.NamedTemporaryFile(prefix="serde-chain-spark-", suffix=".log") as log:
        path = Path(log.name)
        try:
            with spark_session(name, {"spark.master": master, **conf}, log=path) as spark:
                yield spark
        except Exception as error:
            # Spark's log is deleted with the file.
            click.echo(printable(path.read_text(errors="replace")), err=True, nl=False)
            if isinstance(error, ServiceError):
                raise JobError(str(error), hint=_ADVICE if isinstance(error, ServiceStartError) else None) from error
            raise


@contextmanager
def _session_on_cluster(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from serde_chain.spark import packages
    from serde_chain.testing.services.spark import interrupted_later, stop_jvm

    of_jars: dict[str, Any] = {"spark.jars.packages": ",".join(packages()), **settings}
    with interrupted_later() as interrupts:
        try:
            spark = SparkSession.builder.master(master).appName(name).config(map=of_jars).getOrCreate()
        except Exception as error:
            raise JobError(f"Spark did not start on {master}: {_first_line(error)}", hint=_ADVICE) from error
    try:
        if interrupts:
            raise KeyboardInterrupt
        yield spark
    except KeyboardInterrupt:
        stop_jvm(is_asked=False)
        raise
    except BaseException:
        spark.stop()
        raise
    spark.stop()


def _first_line(error: Exception) -> str:
    """The error itself; py4j's text of an error in the JVM continues with Java's stack trace."""
    from py4j.protocol import Py4JJavaError

    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(text).partition("\n")[0]
