"""The compiled part is optional: it is built where cargo runs, and left out, with a line that says why, elsewhere."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def loaded(path: str) -> ModuleType:
    """A program of the repository, as a module."""
    spec = importlib.util.spec_from_file_location(f"loaded_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("SERDE_CHAIN_NATIVE", "SERDE_CHAIN_CARGO"):
        monkeypatch.delenv(name, raising=False)
    return loaded("hatch_build.py")


RUSTUP = "echo 'error: rustup could not choose a version of cargo to run' >&2; exit 1"
OLD = """[ "$1" = --version ] || { printf 'warning: old\\nerror: rustc 1.70.0 is not supported\\n' >&2; exit 101; }"""


def put_on_path(folder: Path, cargo: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder with this cargo the whole of PATH."""
    folder.mkdir()
    if cargo is not None:
        (folder / "cargo").write_text(f"#!/bin/sh\n{cargo}\n")
        (folder / "cargo").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("cargo", "why"),
    [
        (None, "cargo does not run here (No such file or directory)"),
        (RUSTUP, "cargo does not run here (error: rustup could not choose a version of cargo to run)"),
        (OLD, "cargo failed (error: rustc 1.70.0 is not supported)"),
    ],
    ids=["no cargo", "rustup without a toolchain", "an old compiler"],
)
def test_one_line_says_why_it_is_left_out(  # noqa: PLR0917, fixtures
    hook: ModuleType,
    cargo: str | None,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    put_on_path(tmp_path / "bin", cargo, monkeypatch)
    assert hook.build() is None
    assert capfd.readouterr() == ("", f"serde-chain: without its compiled part: {why}\n")
    monkeypatch.setenv("SERDE_CHAIN_NATIVE", "on")
    with pytest.raises(SystemExit, match="is required"):
        hook.build()


def test_it_can_be_left_out(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put_on_path(tmp_path / "bin", f"touch {tmp_path / 'called'}", monkeypatch)
    monkeypatch.setenv("SERDE_CHAIN_NATIVE", "off")
    assert hook.build() is None
    assert capfd.readouterr().err == "serde-chain: without its compiled part: SERDE_CHAIN_NATIVE is off\n"
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SERDE_CHAIN_NATIVE", "no", "SERDE_CHAIN_NATIVE is 'no', expected on, off or auto"),
        ("SERDE_CHAIN_NATIVE", "", "SERDE_CHAIN_NATIVE is '', expected on, off or auto"),
        ("SERDE_CHAIN_CARGO", " ", "SERDE_CHAIN_CARGO is empty, expected a command"),
    ],
)
def test_a_misspelt_variable_is_refused(  # noqa: PLR0917, fixtures
    hook: ModuleType, name: str, value: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the wheel would be another one than was meant."""
    put_on_path(tmp_path / "bin", None, monkeypatch)
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=why):
        hook.build()


def test_the_library_is_what_cargo_names(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its folder depends on the target, its suffix on the system."""
    of_dependency = {"reason": "compiler-artifact", "target": {"name": "libc"}, "filenames": ["/t/liblibc.rlib"]}
    files = ["/t/aarch64/release/_native.dll.lib", "/t/aarch64/release/_native.dll"]
    of_crate = {"reason": "compiler-artifact", "target": {"name": "_native"}, "filenames": files}
    lines = [of_dependency, of_crate, {"reason": "build-finished", "success": True}]
    said = "\n".join(map(json.dumps, lines))
    put_on_path(tmp_path / "bin", f"""[ "$1" = zigbuild ] || exit 0\necho '{said}'""", monkeypatch)
    monkeypatch.setenv("SERDE_CHAIN_CARGO", "cargo zigbuild --target aarch64")
    assert hook.build() == Path(files[1])
    assert capfd.readouterr().err == "serde-chain: with its compiled part\n"


def test_other_interpreters_do_without(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook.sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED")
    assert hook.build() is None


@pytest.fixture
def target(hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the hook puts the compiled part."""
    monkeypatch.setattr(hook, "ROOT", tmp_path)
    path = tmp_path / str(hook.MODULE)
    path.parent.mkdir()
    return path


def test_what_processes_have_loaded_is_replaced_not_written_to(hook: ModuleType, tmp_path: Path, target: Path) -> None:
    library = tmp_path / "lib_native.so"
    for content, changes in ((b"old", True), (b"old", False), (b"new", True)):
        library.write_bytes(content)
        before = target.stat().st_ino if target.exists() else None
        hook.put_in_place(library)
        assert target.read_bytes() == content
        assert (target.stat().st_ino != before) == changes
    assert list(target.parent.iterdir()) == [target]


def test_an_old_library_does_not_stay_in_place(hook: ModuleType, target: Path) -> None:
    """It would be used, although the line says that the compiled part is missing."""
    target.write_bytes(b"old")
    for _ in range(2):
        hook.put_in_place(None)
        assert not target.exists()


def test_bytes_that_are_no_text_do_not_end_a_build(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Compilers write in the encoding of their system."""
    put_on_path(tmp_path / "bin", r"printf 'error: no linker in /caf\351\n' >&2; exit 1", monkeypatch)
    assert hook.build() is None
    assert "(error: no linker in /caf\ufffd)" in capfd.readouterr().err


def wheel_of(folder: Path, name: str, *, has: bool, bill: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serde_chain-1.dist-info/sboms/sbom.cdx.json", bill)
        if has:
            archive.writestr("serde_chain/_native.abi3.so", b"")
    return path


@pytest.mark.parametrize("platform", ["cp311-abi3-manylinux_2_17_x86_64", "py3-none-any"])
@pytest.mark.parametrize("has", [True, False])
@pytest.mark.parametrize("with_crates", [True, False])
def test_wheels_are_what_their_names_say(  # noqa: PLR0917, fixtures
    hook: ModuleType, platform: str, has: bool, with_crates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = loaded("requirements/check_wheels.py")
    bill = hook.bill_of_materials(with_crates=with_crates)
    wheel = wheel_of(tmp_path, f"serde_chain-1-{platform}.whl", has=has, bill=bill)
    meant = "abi3" in platform
    assert (checker.wrong(wheel) is None) == (has == meant and with_crates == meant)
    monkeypatch.setattr(sys, "argv", ["check_wheels.py", str(wheel)])
    with pytest.raises(SystemExit) as ended:
        checker.main()
    assert (ended.value.code is None) == (checker.wrong(wheel) is None)


def test_an_interrupted_build_ends_without_a_traceback(tmp_path: Path) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nkill -INT $PPID\nexec sleep 100\n')
    cargo.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "hatch_build.py"],
        cwd=ROOT,
        env={**os.environ, "SERDE_CHAIN_NATIVE": "on", "SERDE_CHAIN_CARGO": str(cargo)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        # It is ignored in jobs that a shell runs in the background, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stderr) == (130, "")
