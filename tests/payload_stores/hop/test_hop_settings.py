"""Settings of the hop store: what is refused, and where credentials and switches come from."""

from pathlib import Path
from typing import Any

import pytest

from payload_stores import ConfigError, SupportsOptOut, open_store
from payload_stores.hop import HopStore


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, "hop.offload.url"),
        ({"hop.offload.url": "ftp://host"}, "hop.offload.url"),
        ({"hop.offload.url": "http://user:hidden@host"}, "hop.offload.url"),
        ({"hop.offload.url": "http://host/a?b"}, "hop.offload.url"),
        ({"hop.offload.url": "http://host:99999"}, "hop.offload.url"),
        ({"hop.offload.url": "http://host/../a"}, "hop.offload.url"),
        ({"hop.offload.url": "http://host", "hop.username": "a"}, "hop.password"),
        ({"hop.offload.url": "http://host", "sasl.password": "a"}, "hop.username"),
        ({"hop.offload.url": "http://host", "sasl.mechanism": "OAUTHBEARER"}, "hop.token"),
        ({"hop.offload.url": "http://host", "ssl.ca.location": "/nothing"}, "ssl.ca.location"),
        ({"hop.offload.url": "http://host", "hop.scram.mechanism": "SCRAM-SHA-1"}, "hop.scram.mechanism"),
        ({"hop.offload.url": "http://host", "automatic_offload": "perhaps"}, "automatic_offload"),
    ],
)
def test_wrong_settings(config: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")) as caught:
        open_store("hop", config)
    assert "hidden" not in str(caught.value)


def test_credentials_of_the_kafka_client_are_used() -> None:
    for config, mechanism, user in (
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "SCRAM-SHA-256", "alice"),
        ({"sasl.mechanisms": "SCRAM-SHA-512"}, "SCRAM-SHA-512", "alice"),
        ({"sasl.mechanism": "PLAIN"}, "SCRAM-SHA-512", "alice"),
        ({"hop.scram.mechanism": "SCRAM-SHA-256", "hop.username": "bob", "hop.password": "c"}, "SCRAM-SHA-256", "bob"),
    ):
        store = open_store(
            "hop", {"hop.offload.url": "https://host", "sasl.username": "alice", "sasl.password": "b", **config}
        )
        assert isinstance(store, HopStore)
        auth: Any = store._credentials({"sasl.username": "alice", "sasl.password": "b", **config})
        assert (auth.mechanism, auth.username, store.sender) == (mechanism, user, user)
        store.close()


def test_worst_case_fits_the_default_of_the_client() -> None:
    store = open_store("hop", {"hop.offload.url": "https://host"})
    assert (store.worst_case_ms() or 0) < 60_000
    store.close()


@pytest.mark.parametrize("name", ["automatic_offload", "fetch_external"])
def test_precedence_of_switches(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def is_on(**config: object) -> bool:
        store = open_store("hop", {"hop.offload.url": "https://host", **config})
        try:
            assert isinstance(store, SupportsOptOut)
            return store.fetches if name == "fetch_external" else store.why_not() is None
        finally:
            store.close()

    assert is_on()
    file = tmp_path / "hop" / "config.toml"
    file.parent.mkdir()
    file.write_text(f"[config]\n{name} = false\n")
    assert not is_on()
    monkeypatch.setenv(f"HOP_{name.upper()}", "on")
    assert is_on()
    monkeypatch.setenv(f"HOP_{name.upper()}", "0")
    assert is_on(**{name: True})
    assert not is_on()
    monkeypatch.setenv(f"HOP_{name.upper()}", "perhaps")
    with pytest.raises(ConfigError, match="perhaps"):
        is_on()
    monkeypatch.delenv(f"HOP_{name.upper()}")
    for content in ("[config", "config = 1", f'[config]\n{name} = "no"'):
        file.write_text(content)
        with pytest.raises(ConfigError, match=r"config\.toml"):
            is_on()
