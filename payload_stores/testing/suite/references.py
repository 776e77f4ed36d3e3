"""Ids, and references made from them; references come back from the wire and must not be trusted."""

# ruff: noqa: D102, S101  the name of a test says what it shows, assert is how pytest checks

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payload_stores.base import PayloadStore, PublishContext, SupportsList, SupportsTopics
from payload_stores.errors import ConfigError, PayloadStoreError, UntrustedReferenceError
from payload_stores.ids import sha256_digest
from payload_stores.registry import open_store
from payload_stores.testing.suite.base import StoreTests, payload

_CONTENT: Final = PublishContext("content")


class ReferenceTests(StoreTests):
    """References and ids."""

    @pytest.mark.usefixtures("asked_ids")
    def test_reference_is_a_url_with_topic_and_id(self, store: PayloadStore) -> None:
        reference = store.publish(self.topic, b"data", _CONTENT)
        digest = sha256_digest(b"data").removeprefix("sha256:")
        assert reference.startswith(f"{store.scheme}://")
        assert reference.endswith(f"/{self.topic}/{digest}")

    @pytest.mark.usefixtures("asked_ids")
    def test_a_reference_that_is_known_before(self, store: PayloadStore) -> None:
        payload_id = str(uuid.uuid4())
        known = store.reference(self.topic, payload_id)
        if known is None:
            pytest.skip("the store does not know references before (reference), so that a producer has no journal")
        assert store.publish(self.topic, b"data", PublishContext(payload_id=payload_id)) == known
        with pytest.raises(PayloadStoreError):
            store.reference("no topic", payload_id)

    def test_a_store_owns_its_references(self, store: PayloadStore, config: Mapping[str, object]) -> None:
        reference = store.publish(self.topic, b"data")
        reader = open_store(self.store_class, config)
        assert reader.owns(reference)
        assert reader.claim(reference) > 0
        reader.close()
        for foreign in (f"other{reference}", reference.partition("://")[2], "other://host/topic/1", "", "\0", "\ud800"):
            assert not store.owns(foreign)
            assert store.claim(foreign) == 0

    def test_a_reference_tells_its_topic(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsTopics):
            pytest.skip("the store's references do not contain a topic (SupportsTopics)")
        for context in (_CONTENT, PublishContext("keyed", key=b"key"), PublishContext(payload_id="values/id")):
            assert store.topic_of(store.publish(self.topic, b"data", context)) == self.topic
        with pytest.raises(UntrustedReferenceError):
            store.topic_of("elsewhere://bucket/topic/id")

    def test_random_ids_differ(self, store: PayloadStore) -> None:
        references = {store.publish(self.topic, b"same") for _ in range(5)}
        assert len(references) == 5
        assert all(store.download(reference) == b"same" for reference in references)

    @pytest.mark.usefixtures("asked_ids")
    @pytest.mark.parametrize("size", [0, 1000, None], ids=["empty", "small", "large"])
    def test_content_ids_share_one_object(self, store: PayloadStore, size: int | None) -> None:
        data = payload(self.large_bytes if size is None else size)
        first, second = (store.publish(self.topic, data, _CONTENT) for _ in range(2))
        assert (first == second) == store.stable_references
        assert store.download(first) == store.download(second) == data
        if isinstance(store, SupportsList):
            assert {info.reference for info in store.list(self.topic)} == {first, second}

    @pytest.mark.usefixtures("asked_ids")
    def test_content_ids_take_a_known_digest(self, store: PayloadStore) -> None:
        # The right one: a store may pass it on to a server, which compares it with the data.
        digest = sha256_digest(b"data")
        context = PublishContext("content", digest=digest)
        assert store.publish(self.topic, b"data", context).endswith(digest.removeprefix("sha256:"))
        assert store.id(b"other data", context) == store.id(b"data", context)

    @pytest.mark.usefixtures("asked_ids")
    def test_keyed_ids_lie_under_one_prefix(self, store: PayloadStore) -> None:
        first, second = (
            store.publish(self.topic, data, PublishContext("keyed", key=b"key")) for data in (b"one", b"two")
        )
        other = store.publish(self.topic, b"one", PublishContext("keyed", key=b"other"))
        prefixes = [reference.rpartition("/")[0] for reference in (first, second, other)]
        if not store.stable_references:  # there are other segments before topic and id
            prefixes = [prefix.rpartition("/")[2] for prefix in prefixes]
        assert prefixes[0] == prefixes[1] != prefixes[2]
        assert [store.download(reference) for reference in (first, second, other)] == [b"one", b"two", b"one"]

    @pytest.mark.usefixtures("asked_ids")
    def test_keyed_ids_need_a_key(self, store: PayloadStore) -> None:
        with pytest.raises(PayloadStoreError, match="key"):
            store.publish(self.topic, b"data", PublishContext("keyed"))

    def test_ids_can_be_overridden(self, config: Mapping[str, object]) -> None:
        store = self.open_with_id(config, "2024/night-12.1")
        reference = store.publish(self.topic, b"data")
        assert reference.endswith(f"/{self.topic}/2024/night-12.1")
        assert store.download(reference) == b"data"
        store.close()

    @pytest.mark.parametrize(
        "payload_id",
        [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            "..",
            "../a",
            "a/../b",
            ".",
            ".a",
            "a b",
            "ä",
            "a\0b",
            "a?b",
            "a#b",
            "%2e",
            "a\\b",
        ],
    )
    def test_odd_ids_are_refused(self, config: Mapping[str, object], payload_id: str) -> None:
        store = self.open_with_id(config, payload_id)
        with pytest.raises(PayloadStoreError, match="id"):
            store.publish(self.topic, b"data")
        store.close()

    @pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "ä", "a\0", "x" * 250])
    def test_what_is_no_topic_is_refused(self, store: PayloadStore, topic: str) -> None:
        with pytest.raises(PayloadStoreError):
            store.publish(topic, b"data")

    @pytest.mark.parametrize("topic", ["a", "A.b_c-1", "..a", "x" * 249])
    def test_every_topic_is_taken(self, store: PayloadStore, topic: str) -> None:
        assert store.download(store.publish(topic, b"data")) == b"data"

    # References come from the wire.

    @pytest.mark.parametrize("change", ["../{id}", "%2e%2e/{id}", "..%2f{id}", "./{id}", "/{id}", "{id}/", "{id}%00"])
    def test_a_path_that_leads_elsewhere_is_not_followed(self, store: PayloadStore, change: str) -> None:
        prefix, _, payload_id = store.publish(self.topic, b"data").rpartition("/")
        with pytest.raises(UntrustedReferenceError):
            store.download(f"{prefix}/{change.format(id=payload_id)}")

    @pytest.mark.parametrize("end", ["?versionId=1", "#part", "?", "\n", "\0", " \t"])
    def test_more_than_a_path_is_not_followed(self, store: PayloadStore, end: str) -> None:
        with pytest.raises(UntrustedReferenceError):
            store.download(store.publish(self.topic, b"data") + end)

    def test_another_scheme_or_host_is_not_followed(self, store: PayloadStore) -> None:
        rest = store.publish(self.topic, b"data").partition("://")[2]
        for reference in (f"other://{rest}", f"{store.scheme}://elsewhere/{rest}", rest, "", f"{store.scheme}:{rest}"):
            with pytest.raises(UntrustedReferenceError):
                store.download(reference)

    def test_a_trusted_reference_of_another_place_is_not_read_from_the_own(
        self, store: PayloadStore, config: Mapping[str, object]
    ) -> None:
        own = store.publish(self.topic, b"data")
        _, _, path = own.partition("://")[2].partition("/")
        below = f"{self.topic}/{own.rpartition(f'/{self.topic}/')[2]}"  # without the store's own prefix
        trusted = f"{store.scheme}://another-place"
        try:
            reader = open_store(self.store_class, {**config, PayloadStore.TRUSTED.name: trusted})
        except ConfigError as error:
            pytest.skip(f"the store reads from no other place: {error}")
        try:
            if not reader.owns(f"{trusted}/{path}"):
                pytest.skip("the store reads from no other place: it does not own a trusted reference")
            for same in (path, below):
                try:
                    reader.download(f"{trusted}/{same}")
                except PayloadStoreError:
                    continue
                pytest.fail(
                    f"a payload of the store's own place was read by a reference below {trusted}: self.roots.locate "
                    "returns the prefix too; read there, or raise PayloadNotFoundError if it is not self.roots.own"
                )
            assert reader.download(own) == b"data"
        finally:
            reader.close()

    def test_stores_of_different_configurations_share_no_state(
        self, store: PayloadStore, config: Mapping[str, object], other_config: Mapping[str, object]
    ) -> None:
        before = store.publish(self.topic, b"data", _CONTENT)
        other = open_store(self.store_class, other_config)
        try:
            foreign = other.publish(self.topic, b"other data", _CONTENT)
            with pytest.raises(PayloadStoreError):
                store.download(foreign)
            with pytest.raises(PayloadStoreError):
                other.download(before)
            # The other store's settings do not apply to this one.
            after = store.publish(self.topic, b"more data", _CONTENT)
            assert after.partition(f"/{self.topic}/")[0] == before.partition(f"/{self.topic}/")[0]
            reader = open_store(self.store_class, config)
            assert [reader.download(reference) for reference in (before, after)] == [b"data", b"more data"]
            reader.close()
        finally:
            other.close()

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(before=st.text(max_size=3), cut=st.integers(0, 80), after=st.text(max_size=5), encoded=st.booleans())
    def test_any_reference_gives_the_payload_or_a_typed_error(
        self, store: PayloadStore, before: str, cut: int, after: str, encoded: bool
    ) -> None:
        reference = store.publish(self.topic, b"data", _CONTENT)
        at = len(reference) - cut
        change = quote(after, safe="", errors="replace") if encoded else after
        fuzzed = before + reference[:at] + change + reference[at + len(after) :]
        # Some changes only spell the same reference differently; any other error fails the test. Readers would be
        # stuck at a record whose error is not about the record.
        failure: PayloadStoreError | None = None
        try:
            assert store.download(fuzzed) == b"data"
        except PayloadStoreError as error:
            failure = error
        assert failure is None or failure.about_record

    @pytest.mark.parametrize("length", [300, 1500])
    def test_a_path_that_is_too_long_is_about_the_record(self, store: PayloadStore, length: int) -> None:
        reference = store.publish(self.topic, b"data")
        with pytest.raises(PayloadStoreError) as caught:
            store.download(reference + "a" * length)
        assert caught.value.about_record
