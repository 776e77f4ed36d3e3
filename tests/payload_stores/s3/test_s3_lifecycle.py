"""The lifecycle rules of a bucket: which one ends payloads, and ours among those of others."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from payload_stores import PayloadAccessDeniedError, SupportsExpiration, SupportsLifetimes, open_store
from payload_stores.s3 import S3Store
from payload_stores.s3.lifecycle import lifetimes, with_expiration, with_versions
from serde_chain.testing.services import S3Server

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def rule(where: object, days: int = 9, **more: object) -> dict[str, Any]:
    return {"ID": "theirs", "Status": "Enabled", "Filter": where, "Expiration": {"Days": days}, **more}


def parted(*sizes: dict[str, int], days: tuple[int, ...]) -> list[dict[str, Any]]:
    """Rules for the whole bucket, each for some sizes."""
    return [rule({"And": {"Prefix": "", **size}}, age) for size, age in zip(sizes, days, strict=True)]


@pytest.mark.parametrize(
    ("rules", "first", "last"),
    [
        ([], None, None),
        ([rule({"Prefix": "pre/alerts/"})], 9, 9),
        ([rule({"Prefix": ""})], 9, 9),
        ([rule({}, 2**31 - 1)], 999_999_999, 999_999_999),
        ([rule({})], 9, 9),
        ([rule({"Prefix": "pre/al"})], 9, 9),
        ([rule({"Prefix": "pre/alerts/ab"})], 9, None),
        ([rule({"Prefix": "pre/alerts/ab"}), rule({}, 30)], 9, 30),
        ([rule({"Prefix": "pre/alerts/ab"}, 30), rule({}, 9)], 9, 9),
        ([rule({"Prefix": "pre/alerts2/"})], None, None),
        ([rule({"Prefix": "alerts/"})], None, None),
        ([{"Prefix": "pre/", "Status": "Enabled", "Expiration": {"Days": 9}}], 9, 9),
        ([rule({"Prefix": "pre/"}, 9, Status="Disabled")], None, None),
        ([rule({"Tag": {"Key": "a", "Value": "b"}})], None, None),
        ([rule({"And": {"Prefix": "pre/", "Tags": [{"Key": "a", "Value": "b"}]}})], None, None),
        ([rule({"And": {"Prefix": "pre/", "ObjectSizeGreaterThan": 1000}})], 9, None),
        ([rule({"ObjectSizeGreaterThan": 1000})], 9, None),
        ([rule({"ObjectSizeLessThan": 1000})], 9, None),
        ([rule({"ObjectSizeGreaterThan": 0})], 9, None),
        ([rule({"ObjectSizeGreaterThan": 1000}), rule({}, 30)], 9, 30),
        # Together they cover all sizes; both bounds are exclusive.
        (parted({"ObjectSizeLessThan": 1001}, {"ObjectSizeGreaterThan": 1000}, days=(9, 12)), 9, 12),
        (parted({"ObjectSizeGreaterThan": 1000}, {"ObjectSizeLessThan": 1001}, days=(9, 12)), 9, 12),
        (parted({"ObjectSizeLessThan": 1000}, {"ObjectSizeGreaterThan": 1000}, days=(9, 12)), 9, None),
        ([rule({"Prefix": "pre/"}, 9), rule({}, 3), rule({"Prefix": "other/"}, 1)], 3, 3),
        ([rule({}, Expiration={"ExpiredObjectDeleteMarker": True})], None, None),
        # From its day on, a date deletes payloads that are just written.
        ([rule({}, Expiration={"Date": NOW + timedelta(days=2)})], 0, 2),
        ([rule({}, Expiration={"Date": NOW - timedelta(days=2)})], 0, 0),
        ([rule({}, Expiration={"Date": "2026-11-24T00:00:00Z"})], 0, 2),
        (
            [{"Status": "Enabled", "Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}],
            None,
            None,
        ),
        ([rule({}, Expiration=None, NoncurrentVersionExpiration={"NoncurrentDays": 1})], None, None),
    ],
)
def test_when_some_and_when_all_objects_are_deleted(
    rules: list[dict[str, Any]], first: int | None, last: int | None
) -> None:
    found = lifetimes(rules, "pre/alerts/", NOW)
    assert [found.shortest, found.longest] == [None if days is None else timedelta(days=days) for days in (first, last)]


def test_rules_are_described_for_people() -> None:
    rules = [
        rule({"And": {"Prefix": "pre/alerts/ab", "ObjectSizeGreaterThan": 10, "ObjectSizeLessThan": 20}}, 1),
        rule({}, ID="spring", Expiration={"Date": NOW}),
        *(rule({}, ID=f"more {number}") for number in range(1000)),
    ]
    part = "rule 'theirs' (after 1 day), only keys that begin with 'pre/alerts/ab'"
    assert lifetimes(rules, "pre/alerts/", NOW).rules == (
        "rule 'spring' (from 2026-11-22 on, at any age)",
        f"{part}, only objects of more than 10 bytes, only objects of less than 20 bytes",
        *(f"rule 'more {number}' (after 9 days)" for number in range(3)),
        "997 more rules",
    )


@pytest.mark.parametrize(
    ("noncurrent", "where", "last"),
    [
        (None, {}, None),
        ({"NoncurrentDays": 3}, {}, 12),
        ({"NoncurrentDays": 3}, {"Prefix": "pre/alerts/"}, 12),
        ({"NoncurrentDays": 3}, {"Prefix": "pre/alerts/ab"}, None),
        ({"NoncurrentDays": 3}, {"Prefix": "other/"}, None),
        ({"NoncurrentDays": 3, "NewerNoncurrentVersions": 1}, {}, None),  # the only one stays
        ({"NoncurrentDays": 2**31 - 1}, {}, 999_999_999),
    ],
)
def test_versions_stay_until_a_rule_deletes_them(
    noncurrent: dict[str, int] | None, where: dict[str, str], last: int | None
) -> None:
    rules = [rule({"Prefix": "pre/"})]
    if noncurrent is not None:
        other = {"ID": "versions", "Status": "Enabled", "Filter": where, "NoncurrentVersionExpiration": noncurrent}
        rules.append(other)
    found = with_versions(lifetimes(rules, "pre/alerts/", NOW), rules, "pre/alerts/")
    assert found.shortest == timedelta(days=9)
    assert found.longest == (None if last is None else timedelta(days=last))
    assert (found.hint is None) == (last is not None)


@pytest.mark.parametrize(
    ("days", "where", "told"),
    [
        (3, {}, "rule 'versions' (noncurrent versions after 3 days)"),
        (1, {}, "rule 'versions' (noncurrent versions after 1 day)"),
        (
            3,
            {"Prefix": "pre/alerts/ab"},
            "rule 'versions' (noncurrent versions after 3 days), only keys that begin with 'pre/alerts/ab'",
        ),
    ],
)
def test_rules_for_versions_are_reported(days: int, where: dict[str, str], told: str) -> None:
    versions = {
        "ID": "versions",
        "Status": "Enabled",
        "Filter": where,
        "NoncurrentVersionExpiration": {"NoncurrentDays": days},
    }
    rules = [rule({"Prefix": "pre/"}), versions]
    found = with_versions(lifetimes(rules, "pre/alerts/", NOW), rules, "pre/alerts/")
    assert told in found.rules


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


def test_versions_count_only_where_the_bucket_has_them(store: S3Store) -> None:
    assert isinstance(store, SupportsLifetimes)
    store.set_expiration("alerts", timedelta(days=9))
    for status, last in ((None, 9), ("Enabled", None), ("Suspended", 9)):
        if status is not None:
            store._client.put_bucket_versioning(
                Bucket=store._bucket,
                VersioningConfiguration={"Status": status},  # type: ignore[typeddict-item]
            )
        found = store.lifetimes("alerts")
        assert found.shortest == timedelta(days=9) == store.expiration("alerts")
        assert found.longest == (None if last is None else timedelta(days=last))


def answer(store: S3Store, status: int, code: str) -> None:
    """Have the server answer questions about versions with an error."""
    answered = SimpleNamespace(status_code=status), {"Error": {"Code": code}, "ResponseMetadata": {}}
    events: Any = store._client.meta.events  # whose type does not know answers
    events.register("before-call.s3.GetBucketVersioning", lambda **_: answered)


def test_a_server_without_versions(store: S3Store) -> None:
    store.set_expiration("alerts", timedelta(days=9))
    answer(store, 501, "NotImplemented")
    assert store.lifetimes("alerts").longest == timedelta(days=9)


def test_versions_that_this_user_may_not_see_are_unknown(store: S3Store) -> None:
    store.set_expiration("alerts", timedelta(days=9))
    answer(store, 403, "AccessDenied")
    assert store.expiration("alerts") == timedelta(days=9)
    with pytest.raises(PayloadAccessDeniedError) as caught:
        store.lifetimes("alerts")
    assert caught.value.context["topic"] == "alerts"


def test_versions_are_asked_for_only_where_they_matter(store: S3Store) -> None:
    made: list[str] = []
    store._client.meta.events.register("before-call.s3", lambda model, **_: made.append(model.name))
    store.lifetimes("alerts")
    store.expiration("alerts")
    assert made == ["GetBucketLifecycleConfiguration"] * 2


def test_nothing_is_written_that_is_there_already(store: S3Store) -> None:
    store.set_expiration("alerts", timedelta(days=9))
    made: list[str] = []
    store._client.meta.events.register("before-call.s3", lambda model, **_: made.append(model.name))
    store.set_expiration("alerts", timedelta(days=9))
    assert made == ["GetBucketLifecycleConfiguration"]
