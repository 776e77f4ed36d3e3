"""The lifecycle rules of a bucket: which one ends payloads, and ours among those of others."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from payload_stores import SupportsExpiration, open_store
from payload_stores.s3 import S3Store
from payload_stores.s3.lifecycle import earliest_expiration, with_expiration
from serde_chain.testing.services import S3Server

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def rule(where: object, days: int = 9, **more: object) -> dict[str, Any]:
    return {"ID": "theirs", "Status": "Enabled", "Filter": where, "Expiration": {"Days": days}, **more}


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        ([], None),
        ([rule({"Prefix": "pre/alerts/"})], 9),
        ([rule({"Prefix": ""})], 9),
        ([rule({}, 2**31 - 1)], 999_999_999),
        ([rule({})], 9),
        ([rule({"Prefix": "pre/al"})], 9),
        ([rule({"Prefix": "pre/alerts/ab"})], 9),  # some of them
        ([rule({"Prefix": "pre/alerts2/"})], None),
        ([rule({"Prefix": "alerts/"})], None),
        ([{"Prefix": "pre/", "Status": "Enabled", "Expiration": {"Days": 9}}], 9),
        ([rule({"Prefix": "pre/"}, 9, Status="Disabled")], None),
        ([rule({"Tag": {"Key": "a", "Value": "b"}})], None),
        ([rule({"And": {"Prefix": "pre/", "Tags": [{"Key": "a", "Value": "b"}]}})], None),
        ([rule({"And": {"Prefix": "pre/", "ObjectSizeGreaterThan": 1000}})], 9),
        ([rule({"Prefix": "pre/"}, 9), rule({}, 3), rule({"Prefix": "other/"}, 1)], 3),
        ([rule({}, Expiration={"ExpiredObjectDeleteMarker": True})], None),
        ([rule({}, Expiration={"Date": NOW + timedelta(days=2)})], 2),
        ([rule({}, Expiration={"Date": NOW - timedelta(days=2)})], 0),
        ([rule({}, Expiration={"Date": "2026-11-24T00:00:00Z"})], 2),
        ([{"Status": "Enabled", "Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}], None),
    ],
)
def test_the_earliest_rule_counts(rules: list[dict[str, Any]], days: int | None) -> None:
    assert earliest_expiration(rules, "pre/alerts/", NOW) == (None if days is None else timedelta(days=days))


def test_rules_of_others_stay() -> None:
    theirs = [
        rule({"Prefix": "other/"}),
        {"ID": "old", "Prefix": "x/", "Status": "Disabled", "Expiration": {"Days": 1}},
        {
            "ID": "parts",
            "Status": "Enabled",
            "Filter": {},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        },
    ]
    new_form = {"ID": "old", "Filter": {"Prefix": "x/"}, "Status": "Disabled", "Expiration": {"Days": 1}}
    ours = {
        "ID": "serde-chain-pre/alerts",
        "Status": "Enabled",
        "Filter": {"Prefix": "pre/alerts/"},
        "Expiration": {"Days": 3},
    }
    rules = with_expiration(theirs, "pre/alerts/", timedelta(days=2, seconds=1))
    assert rules == [theirs[0], new_form, theirs[2], ours]
    assert with_expiration(rules, "pre/alerts/", timedelta(days=3)) == rules
    assert with_expiration(rules, "pre/alerts/", timedelta(seconds=1))[-1]["Expiration"] == {"Days": 1}
    assert with_expiration(rules, "pre/alerts/", None) == [theirs[0], new_form, theirs[2]]


def test_what_else_our_rule_does_stays() -> None:
    more = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
    [ours] = with_expiration([], "alerts/", timedelta(days=3))
    [changed] = with_expiration([{**ours, **more}], "alerts/", timedelta(days=4))
    assert changed == {**ours, **more, "Expiration": {"Days": 4}}
    [left] = with_expiration([changed], "alerts/", None)
    assert "Expiration" not in left
    assert left["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def test_long_names_are_shortened() -> None:
    rules: list[dict[str, Any]] = []
    for letter in "ab":
        rules = with_expiration(rules, f"{'x' * 200}/{letter * 249}/", timedelta(days=1))
    assert len({each["ID"] for each in rules}) == 2
    assert all(len(each["ID"]) <= 255 for each in rules)


# A bucket


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Iterator[S3Store]:
    store = open_store("s3", {**s3_server.store_config(bucket), "s3.prefix": "pre/"})
    assert isinstance(store, S3Store)
    assert isinstance(store, SupportsExpiration)
    yield store
    store.close()


def test_the_rule_of_a_topic(store: S3Store) -> None:
    assert store.expiration("alerts") is None
    store.set_expiration("alerts", None)
    store.set_expiration("alerts", timedelta(days=8, hours=1))
    store.set_expiration("images", timedelta(days=20))
    assert [store.expiration(topic) for topic in ("alerts", "images", "others")] == [
        timedelta(days=9), timedelta(days=20), None,
    ]  # fmt: skip
    store.set_expiration("alerts", None)
    assert [store.expiration(topic) for topic in ("alerts", "images")] == [None, timedelta(days=20)]
    store.set_expiration("images", None)
    assert store.expiration("images") is None


def test_nothing_is_written_that_is_there_already(store: S3Store) -> None:
    store.set_expiration("alerts", timedelta(days=9))
    made: list[str] = []
    store._client.meta.events.register("before-call.s3", lambda model, **_: made.append(model.name))
    store.set_expiration("alerts", timedelta(days=9))
    assert made == ["GetBucketLifecycleConfiguration"]
