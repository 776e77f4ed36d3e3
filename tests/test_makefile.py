"""What `make` installs is pinned, and is installed where uv is not available as well."""

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def install() -> ModuleType:
    """The program requirements/install.py."""
    spec = importlib.util.spec_from_file_location("install_locked", REQUIREMENTS / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(name: str) -> set[str]:
    return set(re.findall(r"^[\w.-]+==\S+", (REQUIREMENTS / name).read_text(encoding="utf-8"), re.MULTILINE))


def test_what_is_installed_is_pinned_with_hashes() -> None:
    lines = re.findall(r"pip install (.*)", MAKEFILE)
    lines += re.findall(r'"pip", "install", (.*)', (REQUIREMENTS / "install.py").read_text(encoding="utf-8"))
    assert len(lines) >= 3
    calls = [*re.findall(r"requirements/install\.py (.*)", MAKEFILE), *lines]
    assert len(calls) >= 7
    own = ("*arguments", '"--quiet", "--python"', "requirements/")
    assert all("--require-hashes" in line or any(each in line for each in own) for line in calls)


def test_the_demo_has_some_of_the_versions_of_the_tests_and_none_of_their_peers() -> None:
    demo = pins("demo.txt")
    assert demo <= pins("dev.txt")
    assert not {"duckdb", "polars", "astropy", "matplotlib", "playwright", "faststream", "pytest"} & {
        pin.partition("==")[0] for pin in demo
    }


def test_uv_gets_the_settings_of_pip(install: ModuleType) -> None:
    listed = (
        ":env:.cert='/certificates.pem'\n:env:.disable-pip-version-check='1'\nglobal.cert='/other.pem'\n"
        "global.index-url='https://first.example/simple'\ninstall.find-links='/one /two'\nglobal.no-index='true'\n"
        "wheel.index-url='https://others.example/simple'\n"
    )
    options = install.options_of_pip(listed)
    assert options["no-index"] == "true"
    environment = install.uv_environment(options, {"HOME": "/home/someone", "UV_DEFAULT_INDEX": "https://own.example"})
    assert environment == {
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_DEFAULT_INDEX": "https://own.example",
        "UV_FIND_LINKS": "/one,/two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "HOME": "/home/someone",
    }


def test_some_packages_of_a_lock_keep_their_hashes(install: ModuleType) -> None:
    lock = (
        "# comment\npy4j==0.10 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "pyspark==4.1.1 ; python_version < '4' \\\n    --hash=sha256:cc\nsix==1.17 \\\n    --hash=sha256:dd\n"
    )
    assert install.part_of(lock, ["pyspark", "py4j"]) == "".join(lock.partition("\n")[2].partition("six")[0])
    of_demo = install.part_of((REQUIREMENTS / "demo.txt").read_text(encoding="utf-8"), install.FIRST)
    assert re.findall(r"^[\w-]+", of_demo, re.MULTILINE) == sorted(install.FIRST)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locked") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("program", ["pip", "uv"])
def test_a_locked_package_is_installed_by_either(  # noqa: PLR0917, fixtures
    install: ModuleType,
    venv: Path,
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No index answers: uv cannot be fetched, and packages come from a folder."""
    uv = Path(sys.executable).parent / "uv"
    if program == "uv" and not uv.exists():
        pytest.skip("uv is not in this environment: `make venv` installs it")
    wheel, digest = make_wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    lock = tmp_path / "lock.txt"
    lock.write_text(f"one-module==1.0 \\\n    --hash=sha256:{digest}\n")
    installer = install.Installer(venv)
    if program == "uv":
        shutil.copy(uv, venv / "bin" / "uv")
        monkeypatch.setattr(install, "HERE", empty_lock(tmp_path))
    installer.get_uv()
    installer.install("one package", "--force-reinstall", "--require-hashes", "--no-deps", "-r", str(lock))
    said = capfd.readouterr().err
    assert ("pip goes on" in said) == (program == "pip")
    assert subprocess.run([installer.python, "-c", "import one_module"], check=False).returncode == 0
    # Another file of the same name, by neither.
    lock.write_text(f"one-module==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    with pytest.raises(SystemExit):
        installer.install("one package", "--force-reinstall", "--require-hashes", "--no-deps", "-r", str(lock))


def empty_lock(folder: Path) -> Path:
    """A folder with a lock.txt without packages, for a uv that is there."""
    (folder / "own").mkdir()
    (folder / "own" / "lock.txt").write_text("# nothing\n")
    return folder / "own"


def make_wheel(folder: Path) -> tuple[Path, str]:
    """A wheel of one module, and its SHA-256."""
    folder.mkdir()
    info = "one_module-1.0.dist-info"
    files = {
        "one_module.py": b"",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: one-module\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = folder / "one_module-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_goal_is_explained() -> None:
    phony = re.findall(r"^\.PHONY: (.*)", MAKEFILE.replace("\\\n", ""), re.MULTILINE)
    explained = set(re.findall(r"^#   make ([\w-]+)", MAKEFILE, re.MULTILINE))
    checks = {f"check-{what}" for what in ("python", "java", "go", "cargo", "node", "browser", "tools")}
    assert explained | {"help", "venv"} | checks == set(phony[0].split())


def test_an_interrupted_setup_ends_in_a_line(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(install.subprocess, "run", interrupted)
    monkeypatch.setattr(sys, "argv", ["install.py", str(tmp_path / "venv"), str(tmp_path / "lock.txt")])
    with pytest.raises(SystemExit, match="Interrupted; the next `make` continues"):
        install.main()


def test_the_pytest_of_another_environment_names_what_it_lacks() -> None:
    """Without plugins, pytest itself complained of a filter for warnings."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_record.py"],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == "ERROR: Missing required plugins: hypothesis, pytest-timeout\n\n"


def test_an_environment_without_its_interpreter_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/no/such/python")
    (tmp_path / ".stamp").touch()
    done = subprocess.run(
        ["make", "lint", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"The interpreter of {tmp_path} is gone, or does not run: remove the folder")
