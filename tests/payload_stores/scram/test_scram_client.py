"""HTTP SCRAM, the client's keys: derived once, few, and never shown."""

import hashlib

import pytest

from payload_stores.scram import ScramAuth
from payload_stores.scram.client import Password
from tests.payload_stores.scram.test_scram import KEYS, PASSWORD, USER, Site


def test_keys_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[bytes] = []
    derive_key = hashlib.pbkdf2_hmac

    def counting(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        derived.append(salt)
        return derive_key(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counting)
    for seconds in (600, 0):
        derived.clear()
        site = Site(session_seconds=seconds)
        auth = ScramAuth(USER, PASSWORD)
        for _ in range(2):
            with site.client(auth) as client:
                assert [client.get("/x").status_code for _ in range(3)] == [200] * 3
        assert derived == [KEYS["SCRAM-SHA-256"].salt]
        # What another password gives is not taken for it.
        with site.client(ScramAuth(USER, "other")) as client:
            assert client.get("/x").status_code == 401


def test_a_bounded_number_of_keys_is_remembered_and_none_is_shown() -> None:
    password = Password(PASSWORD, "SCRAM-SHA-256")
    made = [password.keys(bytes([number]) * 12, 4096) for number in range(40)]
    assert len(set(made)) == 40
    assert len(password._keys) == 16
    assert password.keys(bytes([39]) * 12, 4096) is made[39]
    assert password.keys(bytes([24]) * 12, 4096) is made[24]
    password.keys(bytes([40]) * 12, 4096)
    assert {salt[0] for salt, _ in password._keys} == {24, *range(26, 41)}  # the least recently used one went
    assert password.keys(bytes([0]) * 12, 4096) == made[0]
    assert password.keys(bytes([0]) * 12, 4097) != made[0]
    shown = f"{made} {password} {vars(ScramAuth(USER, PASSWORD))}"
    assert PASSWORD not in shown
    assert str(made[0].client) not in shown
