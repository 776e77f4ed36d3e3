"""`doctor`, `check-config` and `explain` say whether Avro is read and written by the compiled part."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serde_chain import config as configuration
from serde_chain.cli.check_config import print_config
from serde_chain.cli.doctor.offline import compiled
from serde_chain.spark import explain
from serde_chain.stages.avro.native import find, library, remedy

CONFIG = {"value.deserializers": "avro", "avro.schema": '"int"'}


@pytest.fixture(params=["auto", "off"])
def absence(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str | None]:
    """Why there is no compiled part; None with it."""
    monkeypatch.setenv("SERDE_CHAIN_NATIVE", request.param)
    find.cache_clear()
    if request.param == "off":
        yield "serde-chain is run with SERDE_CHAIN_NATIVE = off"
    else:
        yield None if library() is not None else "serde-chain is built without its compiled part"
    monkeypatch.undo()
    find.cache_clear()


def test_explain(absence: str | None) -> None:
    [_, said] = explain(CONFIG, engine="arrow").splitlines()
    assert said == ("avro: compiled" if absence is None else f"avro: fastavro, record by record ({absence})")


def test_doctor(absence: str | None) -> None:
    [said] = map(str, compiled(configuration.resolve(CONFIG)))
    by_fastavro = f"by fastavro, record by record, several times slower than compiled: {absence}. {remedy()[:20]}"
    assert said.removeprefix("ok       avro: ").startswith("compiled" if absence is None else by_fastavro)


def test_check_config(absence: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in CONFIG.items()))
    assert print_config(path, as_json=True) == []
    assert f'"avro.native": "auto (default; {absence or "compiled"})"' in capsys.readouterr().out
