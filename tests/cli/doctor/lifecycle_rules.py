"""Lifecycle rules that servers of S3 keep for topics with a retention of a week, and what ``doctor`` says of them."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from serde_chain.testing.services import KafkaBroker
from serde_chain.testing.services.s3_endpoint import S3Endpoint
from tests.cli.conftest import run
from tests.conftest import NewTopic

WEEK = {"retention.ms": str(7 * 86_400_000)}
SOON = (datetime.now(UTC) + timedelta(days=9)).replace(hour=0, minute=0, second=0, microsecond=0)
SET = 'open_store("s3", config).set_expiration('


def rule(days: int | None = 9, **settings: Any) -> dict[str, Any]:
    """A rule; its filter may have a size or a tag, and the end of its prefix, behind the topic's."""
    return {"Status": "Enabled", **({} if days is None else {"Expiration": {"Days": days}}), **settings}


@dataclass(frozen=True)
class Case:
    """Rules of a topic.

    Attributes:
        rules: The rules; :func:`placed` adds the topic's prefix.
        level: The level of ``retention``.
        texts: Parts of its message.
        change: A part of its remedy.
    """

    rules: tuple[dict[str, Any], ...]
    level: str
    texts: tuple[str, ...]
    change: str | None = SET


STAY = "after 9 days, but some stay, and the topic deletes records after 7 days"
NEVER = "only on request, but the topic deletes records after 7 days, whose payloads stay"
LOST = "but the topic keeps records for 7 days: they lose their payloads"

CASES = {
    "whole": Case((rule(),), "ok", ("payloads live for 9 days",), None),
    "none": Case((), "warning", (NEVER,)),
    "a-part": Case((rule(Filter={"Prefix": "ab"}),), "warning", (STAY, "only keys that begin with", "/ab'")),
    "large": Case(
        (rule(Filter={"ObjectSizeGreaterThan": 100_000}),), "warning", (STAY, "only objects of more than 100000 bytes")
    ),
    "small": Case(
        (rule(Filter={"ObjectSizeLessThan": 100_000}),), "warning", (STAY, "only objects of less than 100000 bytes")
    ),
    "large-and-small": Case(
        (rule(Filter={"ObjectSizeGreaterThan": 100_000}), rule(Filter={"ObjectSizeLessThan": 100_001})),
        "ok",
        ("payloads live for 9 days",),
        None,
    ),
    "a-part-too-early": Case(
        (rule(1, Filter={"Prefix": "ab"}), rule()),
        "error",
        ("after 1 day, ", LOST, "only keys that begin with"),
        "remove other rules",
    ),
    "tags": Case((rule(Filter={"Tag": {"Key": "a", "Value": "b"}}),), "warning", (NEVER,)),
    "disabled": Case((rule(Status="Disabled"),), "warning", (NEVER,)),
    "date": Case(
        (rule(None, Expiration={"Date": SOON}),),
        "error",
        ("after 0 days", LOST, f"(from {SOON:%Y-%m-%d} on, at any age)"),
    ),
    "markers": Case((rule(None, Expiration={"ExpiredObjectDeleteMarker": True}),), "warning", (NEVER,)),
    "versions": Case((rule(None, NoncurrentVersionExpiration={"NoncurrentDays": 1}),), "warning", (NEVER,)),
    "uploads": Case((rule(None, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}),), "warning", (NEVER,)),
    "later-part": Case(
        (rule(Filter={"ObjectSizeGreaterThan": 100_000}), rule(60)), "warning", ("after 60 days, much later",)
    ),
}
OLD = "the bucket keeps versions, and no rule deletes all noncurrent ones"
ADD = "Add NoncurrentVersionExpiration"
# In a bucket with versions, Expiration only adds a delete marker.
VERSIONED = {
    "whole": Case((rule(),), "warning", (STAY, OLD), ADD),
    "with-versions": Case(
        (rule(NoncurrentVersionExpiration={"NoncurrentDays": 1}),), "ok", ("payloads live for 9 days",), None
    ),
    "but-the-newest": Case(
        (rule(NoncurrentVersionExpiration={"NoncurrentDays": 1, "NewerNoncurrentVersions": 1}),),
        "warning",
        (STAY, OLD),
        ADD,
    ),
    "versions-for-long": Case(
        (rule(NoncurrentVersionExpiration={"NoncurrentDays": 60}),),
        "warning",
        ("after 69 days, much later", "noncurrent versions after 60 days"),
    ),
    "none": Case((), "warning", (NEVER,)),
}


def placed(rules: tuple[dict[str, Any], ...], topic: str) -> list[dict[str, Any]]:
    """The rules, below the topic's folder."""
    done: list[dict[str, Any]] = []
    for number, each in enumerate(rules):
        where = dict(each.get("Filter", {}))
        prefix = f"pre/{topic}/{where.pop('Prefix', '')}"
        tag = {"Tags": [where.pop("Tag")]} if "Tag" in where else {}
        together = {"And": {"Prefix": prefix, **tag, **where}} if tag or where else {"Prefix": prefix}
        done.append({**each, "ID": f"{topic}-{number}", "Filter": together})
    return done


def check(  # noqa: PLR0917, fixtures of tests
    server: S3Endpoint, broker: KafkaBroker, new_topic: NewTopic, folder: Path, versions: bool, without: set[str]
) -> None:
    """Keep rules in one bucket, and compare what ``serde-chain doctor`` says of each topic.

    Args:
        server: The server.
        broker: The broker of the topics.
        new_topic: Creates them.
        folder: For the configuration.
        versions: Whether the bucket keeps versions.
        without: Names of cases that this server does not keep.
    """
    cases = {name: case for name, case in (VERSIONED if versions else CASES).items() if name not in without}
    bucket = server.create_bucket()
    client: Any = server.client()
    if versions:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    topics = {new_topic(1, WEEK): case for case in cases.values()}
    rules = [each for topic, case in topics.items() for each in placed(case.rules, topic)]
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    config = {
        **broker.client_config(),
        "value.serializers": "large-message",
        "large.message.payload.store.class": "s3",
        **server.store_config(bucket),
        "s3.prefix": "pre/",
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
    lines = run("doctor", path, *topics, "--json", code=1 if "error" in {case.level for case in cases.values()} else 0)
    found = {told["topic"]: told for told in map(json.loads, lines.stdout.splitlines()) if told["name"] == "retention"}
    assert found.keys() == topics.keys()
    for (topic, case), name in zip(topics.items(), cases, strict=True):
        told = found[topic]
        assert told["level"] == case.level, (name, told)
        for text in case.texts:
            assert text in told["message"], name
        assert case.change in told["change"] if case.change else told["change"] is None, (name, told)
