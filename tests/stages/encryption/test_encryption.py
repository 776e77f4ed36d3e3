"""``encrypt``: keys, rotation, what is refused, and that nothing leaks."""

import base64
import os
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import (
    ConfigError,
    DecodeError,
    DecryptionError,
    DeserializerChain,
    EncodeError,
    MissingDependencyError,
    RecordContext,
    SerializerChain,
    UnknownKeyError,
)
from serde_chain.stages.encryption import envelope
from serde_chain.stages.encryption import stage as encryption
from serde_chain.testing import SerializerTests

KEY = bytes(range(32))
OTHER = bytes(range(32, 64))
PLAIN = b"a plaintext that nobody should see"


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def serializer(**config: object) -> SerializerChain:
    return SerializerChain.from_config({"value.serializers": "bytes, encrypt", **dotted(config)})


def deserializer(**config: object) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "encrypt, bytes", **dotted(config)})


def dotted(config: Mapping[str, object]) -> dict[str, object]:
    return {f"encryption.{key.replace('_', '.')}": value for key, value in config.items()}


def ctx(topic: str = "payments", field: str = "value") -> RecordContext:
    return RecordContext(topic, field)


class Conformance(SerializerTests):
    stage = "encrypt"
    values = st.binary(max_size=300)
    foreign = (b"", b"\xce", b"\xce\x01", b"plain text", b"\xce\x02" + bytes(80), bytes(100))
    expects_type = bytes


class TestGcm(Conformance):
    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"encryption.keys": {"k1": KEY, "k2": OTHER}, "encryption.key.id": "k2"}


class TestSiv(Conformance):
    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"encryption.keys.k1": text(KEY), "encryption.mode": "siv"}


# Written once, on 2026-11-21, and to be read for ever. GCM's are not written again: salt and nonce are random.
GOLDEN_GCM = bytes.fromhex(
    "ce010107323032362d3131de7f57937cfe1ba64b9e2878c564255f102c6b4b99c8defe61d4a6a907ea834d5cb09a476ba9cb"
    "ebf0d01f069ce83e1dab0ddbc2694553f67e3f47b14a176a32b0c68dd9cbb27f58297c0769db16"
)
GOLDEN_SIV = bytes.fromhex(
    "ce010207323032362d3131d92fa173a39f7f2118be98a1542b46125da8c5d5c2b4d708e82398cf482966fff0942ea42a71f3"
    "f1f3bd01d88331174d103f"
)
GOLDEN_SIV_KEY_FIELD = bytes.fromhex(
    "ce010207323032362d31318df34e0f16f19e8fdab0db78e73ffb83d76ac5f2267679a737a68f8c8d3693c6ce6fd9381aadd4"
    "a7bbea12c93fb0dff4b13f"
)


def test_old_bytes_are_read() -> None:
    read = deserializer(keys={"2026-11": KEY})
    assert read(GOLDEN_GCM, ctx()) == PLAIN
    assert read(GOLDEN_SIV, ctx()) == PLAIN
    assert read(GOLDEN_SIV_KEY_FIELD, ctx(field="key")) == PLAIN


def test_siv_writes_the_same_bytes_for_ever() -> None:
    write = serializer(keys={"2026-11": KEY}, mode="siv")
    assert write(PLAIN, ctx()) == GOLDEN_SIV
    assert write(PLAIN, ctx(field="key")) == GOLDEN_SIV_KEY_FIELD
    assert write(PLAIN, ctx("other")) != GOLDEN_SIV


def test_gcm_never_writes_the_same_bytes() -> None:
    write = serializer(keys={"k": KEY})
    found = [envelope.split(write(PLAIN, ctx())) for _ in range(1000)]
    assert len({item.nonce for item in found}) == 1000
    assert len({item.head for item in found}) == 1  # key id and salt
    again = envelope.split(pickle.loads(pickle.dumps(write))(PLAIN, ctx()))  # noqa: S301, our own bytes
    assert envelope.key_of(again.head)[1] != envelope.key_of(found[0].head)[1]


def test_the_salt_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "_RECORDS_PER_SALT", 10)
    write, read = serializer(keys={"k": KEY}), deserializer(keys={"k": KEY})
    records = [write(PLAIN, ctx()) for _ in range(35)]
    assert len({envelope.split(record).head for record in records}) == 4
    assert {read(record, ctx()) for record in records} == {PLAIN}


def test_sizes_are_as_documented() -> None:
    for mode, added in (("gcm", 44), ("siv", 16)):
        for size in (0, 1, 1000):
            assert len(serializer(keys={"key": KEY}, mode=mode)(bytes(size), ctx())) == size + 4 + len("key") + added


@pytest.mark.parametrize("mode", ["gcm", "siv"])
class TestWhatIsRefused:
    def test_another_key(self, mode: str) -> None:
        record = serializer(keys={"k": KEY}, mode=mode)(PLAIN, ctx())
        assert_refused(record, ctx(), keys={"k": OTHER})

    def test_another_topic_or_field(self, mode: str) -> None:
        record = serializer(keys={"k": KEY}, mode=mode)(PLAIN, ctx())
        assert_refused(record, ctx("refunds"), keys={"k": KEY})
        assert_refused(record, ctx(field="key"), keys={"k": KEY})
        assert deserializer(keys={"k": KEY}, topic="payments")(record, ctx("copy-of-payments")) == PLAIN

    def test_every_flipped_bit(self, mode: str) -> None:
        record = serializer(keys={"k": KEY}, mode=mode)(b"plain", ctx())
        read = deserializer(keys={"k": KEY})
        for bit in range(8 * len(record)):
            damaged = bytearray(record)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DecodeError):
                read(damaged, ctx())

    def test_the_same_bytes_under_another_key_id(self, mode: str) -> None:
        record = serializer(keys={"k": KEY}, mode=mode)(PLAIN, ctx())
        renamed = record.replace(b"\x01k", b"\x01j", 1)
        assert_refused(renamed, ctx(), keys={"k": KEY, "j": KEY})

    def test_an_unknown_key_id(self, mode: str) -> None:
        record = serializer(keys={"retired": KEY}, mode=mode)(PLAIN, ctx())
        with pytest.raises(UnknownKeyError, match="key retired, which is not configured"):
            deserializer(keys={"k": KEY})(record, ctx())

    def test_an_unknown_version(self, mode: str) -> None:
        record = bytearray(serializer(keys={"k": KEY}, mode=mode)(PLAIN, ctx()))
        record[1] = 2
        with pytest.raises(DecodeError, match="unknown version 2"):
            deserializer(keys={"k": KEY})(record, ctx())

    def test_no_topic(self, mode: str) -> None:
        write, read = serializer(keys={"k": KEY}, mode=mode), deserializer(keys={"k": KEY})
        with pytest.raises(EncodeError, match="needs the record's topic"):
            write(PLAIN)
        with pytest.raises(DecodeError, match="needs the record's topic"):
            read(write(PLAIN, ctx()))


def test_a_header_does_not_lead_around_it() -> None:
    """hop's ``_format`` ends a chain with the bytes as they are; who writes a record writes its headers."""
    config = {"encryption.keys": {"k": KEY}, "large.message.payload.store.class": "memory"}
    for stages in ("large-message, encrypt", "large-message, encrypt, json"):
        read = DeserializerChain.from_config(
            {**config, "large.message.accept": "kip1159, hop", "value.deserializers": stages}
        )
        record = RecordContext("payments", "value", [("_format", b"other")])
        with pytest.raises(DecodeError, match="format 'other'") as caught:
            read(PLAIN, record)
        assert caught.value.about_record
        assert_no_leak(caught.value)
        assert getattr(caught.value, "data", None) is None
        read.close()


def assert_refused(record: bytes, at: RecordContext, **config: object) -> None:
    with pytest.raises(DecryptionError) as caught:
        deserializer(**config)(record, at)
    assert_no_leak(caught.value)


def assert_no_leak(error: BaseException) -> None:
    """Nothing of keys or plaintext in an error, in what caused it, or after pickling."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301, our own bytes
    for shown in (error, error.__cause__, copy, copy.__cause__):
        for words in (str(shown), repr(shown)):
            for secret in (KEY, OTHER, PLAIN):
                for form in (text(secret), secret.hex(), repr(secret)[2:-1], secret.decode("latin-1")):
                    assert form not in words


def test_representations_show_no_keys() -> None:
    for chain in (serializer(keys={"k": KEY}), deserializer(keys=f"k = {text(KEY)}")):
        for shown in (repr(chain), *(repr(stage) for stage in chain.stages)):
            assert text(KEY) not in shown
            assert repr(KEY) not in shown


def test_rotation() -> None:
    old = serializer(keys={"old": KEY})(PLAIN, ctx())
    both: Any = {"old": KEY, "new": OTHER}
    new = serializer(keys=both, key_id="new")(PLAIN, ctx())
    read = deserializer(keys=both)
    assert read(old, ctx()) == read(new, ctx()) == PLAIN
    assert envelope.key_of(envelope.split(new).head)[0] == "new"


def test_keys_come_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_ENCRYPTION_KEY", f" {KEY.hex()}\n")
    (tmp_path / "raw").write_bytes(KEY)
    (tmp_path / "text").write_text(text(KEY) + "\n")
    url_safe = base64.urlsafe_b64encode(KEY).decode().rstrip("=")
    sources: tuple[Any, ...] = (
        KEY, text(KEY), url_safe, KEY.hex(), KEY.hex().upper(), "env:TEST_ENCRYPTION_KEY",
        f"file:{tmp_path}/raw", f"file:{tmp_path}/text",
    )  # fmt: skip
    record = serializer(keys={"k": KEY})(PLAIN, ctx())
    for source in sources:
        assert deserializer(keys={"k": source})(record, ctx()) == PLAIN
        assert deserializer(**{"keys.k": source})(record, ctx()) == PLAIN
    for listed in (f"j = {text(OTHER)}, k = {text(KEY)}", f"k:{text(KEY)}", "k:env:TEST_ENCRYPTION_KEY,"):
        assert deserializer(keys=listed)(record, ctx()) == PLAIN


class Vault:
    """A key provider as a user would write it."""

    keys = {"k": KEY, "short": b"short"}  # noqa: RUF012, a test's constant
    configured: Mapping[str, object] = {}

    def configure(self, config: Mapping[str, object]) -> None:
        self.configured = config

    def key(self, key_id: str) -> bytes:
        if key_id == "down":
            raise ConnectionError("no route to the vault")
        return self.keys[key_id]


def test_a_provider_gives_keys() -> None:
    record = serializer(keys={"k": KEY})(PLAIN, ctx())
    vault = Vault()
    for spec in (vault, Vault, f"{__name__}.Vault"):
        read = deserializer(**{"key.provider.class": spec, "key.provider.url": "https://vault"})
        assert read(record, ctx()) == PLAIN
    assert vault.configured["encryption.key.provider.url"] == "https://vault"
    wrote = serializer(**{"key.provider.class": Vault, "key.id": "k"})(PLAIN, ctx())
    assert deserializer(keys={"k": KEY})(wrote, ctx()) == PLAIN
    for key_id, why in (("down", "ConnectionError"), ("short", "5 bytes"), ("gone", "KeyError")):
        with pytest.raises(ConfigError, match=why):
            serializer(**{"key.provider.class": Vault, "key.id": key_id})
    down = serializer(keys={"down": KEY})(PLAIN, ctx())
    with pytest.raises(DecryptionError, match="the key down cannot be obtained: ConnectionError"):
        deserializer(**{"key.provider.class": Vault})(down, ctx())
    gone = serializer(keys={"gone": KEY})(PLAIN, ctx())
    with pytest.raises(UnknownKeyError):
        deserializer(**{"key.provider.class": Vault})(gone, ctx())


class Counting:
    """A key provider that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keys = {"k": KEY}
        self.down = False

    def key(self, key_id: str) -> bytes:
        self.asked.append(key_id)
        if self.down:
            raise ConnectionError
        return self.keys[key_id]


def forged(record: bytes, key_id: bytes = b"k") -> bytes:
    """A record with another salt or key id, as any writer to the topic can make it."""
    end = 4 + record[3]
    return record[:3] + bytes([len(key_id)]) + key_id + os.urandom(16) + record[end + 16 :]


def test_forged_records_do_not_ask_the_provider_again_and_again() -> None:
    vault, record = Counting(), serializer(keys={"k": KEY})(PLAIN, ctx())
    read = deserializer(**{"key.provider.class": vault})
    for _ in range(2000):
        with pytest.raises(DecryptionError, match="cannot be authenticated"):
            read(forged(record), ctx())
        with pytest.raises(UnknownKeyError):
            read(forged(record, b"gone"), ctx())
    assert vault.asked == ["k", "gone"]
    assert read(record, ctx()) == PLAIN


def test_a_key_that_is_added_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    vault, record = Counting(), serializer(keys={"new": KEY})(PLAIN, ctx())
    read = deserializer(**{"key.provider.class": vault})
    for _ in range(2):
        with pytest.raises(UnknownKeyError):
            read(record, ctx())
    vault.keys["new"] = KEY
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert read(record, ctx()) == PLAIN
    assert vault.asked == ["new", "new"]


def test_a_provider_that_is_down_is_not_the_records_fault() -> None:
    vault, record = Counting(), serializer(keys={"k": KEY})(PLAIN, ctx())
    read = deserializer(**{"key.provider.class": vault})
    vault.down = True
    with pytest.raises(DecryptionError, match="ConnectionError") as caught:
        read(record, ctx())
    assert (caught.value.about_record, caught.value.transient) == (False, True)
    vault.down = False
    assert read(record, ctx()) == PLAIN


@pytest.mark.parametrize("key_id", [b"", b"a b", b"k\n", b"\xff", b"..\\k", b"k" * 129])
def test_what_is_no_key_id_does_not_reach_the_provider(key_id: bytes) -> None:
    vault, record = Counting(), serializer(keys={"k": KEY})(PLAIN, ctx())
    with pytest.raises(DecodeError, match="key id"):
        deserializer(**{"key.provider.class": vault})(forged(record, key_id), ctx())
    assert vault.asked == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no keys"),
        ({"keys": {}}, "no keys"),
        ({"keys": "k"}, "expected id = key"),
        ({"keys": f"k={text(KEY)}, k={text(KEY)}"}, "each id once"),
        ({"keys": {"k": KEY[:31]}}, "31 bytes, at least 32"),
        ({"keys": {"k": text(KEY)[:20]}}, "15 bytes, at least 32"),
        ({"keys": {"k": "!" + text(KEY)}}, "neither base64 nor hexadecimal.*Write encryption.keys = ID=env:VARIABLE"),
        ({"keys": "env:MY_KEY"}, "Write encryption.keys = ID=env:VARIABLE"),
        ({"keys": {"k": "env:NO_SUCH_VARIABLE"}}, "NO_SUCH_VARIABLE is not set"),
        ({"keys": {"k": "file:/no/such/file"}}, "FileNotFoundError"),
        ({"keys": {"k k": KEY}}, "expected a key id"),
        ({"keys": {"k" * 129: KEY}}, "expected a key id"),
        ({"keys.ä": text(KEY)}, "expected a key id"),
        ({"keys": {"j": KEY, "k": KEY}}, "encryption.key.id is required"),
        ({"keys": {"j": KEY, "k": KEY}, "key.id": "l"}, "l is not among the keys; there are j, k"),
        ({"keys": {"k": KEY}, "mode": "ecb"}, "gcm, siv"),
        ({"keys": {"k": KEY}, "key.provider.class": Vault}, "exclude each other"),
        ({"key.provider.class": Vault}, "encryption.key.id is required"),
        ({"key.provider.class": "no.such.Provider"}, "cannot be imported"),
        ({"key.provider.class": object}, "no method key"),
        ({"keys": {"k": KEY}, "kex": "x"}, "is not a configuration key"),
    ],
)
def test_wrong_settings_are_said(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        serializer(**config)
    assert_no_leak(caught.value)


def test_an_old_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        """AESGCM as it was before release 47."""

    monkeypatch.setattr("cryptography.hazmat.primitives.ciphers.aead.AESGCM", Old)
    with pytest.raises(MissingDependencyError, match="older than 47"):
        serializer(keys={"k": KEY})


def test_confluents_context_is_taken() -> None:
    theirs = SerializationContext("payments", MessageField.VALUE)
    record = serializer(keys={"k": KEY})(PLAIN, theirs)
    assert deserializer(keys={"k": KEY})(record, ctx()) == PLAIN
    assert_refused(record, ctx(field="key"), keys={"k": KEY})


def test_many_key_ids_and_salts_take_bounded_memory() -> None:
    read = deserializer(keys={"k": KEY})
    (stage, _) = read.stages
    for _ in range(600):
        record = envelope.head(envelope.GCM, "k", os.urandom(16)) + bytes(40)
        with pytest.raises(DecryptionError):
            read(record, ctx())
    assert len(stage._ciphers) <= 256


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    read = deserializer(keys={"k": KEY})
    for candidate in (data, b"\xce\x01" + data, b"\xce\x01\x01\x01k" + data, b"\xce\x01\x02\x01k" + data):
        with pytest.raises(DecodeError):
            read(candidate, ctx())
