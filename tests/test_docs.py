"""Pages name the configuration keys of the code, and files that exist. Whether their code runs: test_pages.py."""

import ast
import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from payload_stores.base import PayloadStore
from payload_stores.plugins import import_object
from payload_stores.registry import STORES
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS
from tests.environments import python_blocks

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))


def test_configuration_page_lists_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9_.*]+)` \| ([^|]*?) *\|", page, re.MULTILINE))
    paths = {*SERIALIZERS.builtins.values(), *DESERIALIZERS.builtins.values(), *STORES.builtins.values()}
    classes = [PayloadStore, *(import_object(path) for path in paths)]
    for option in {option for cls in classes for option in getattr(cls, "options")}:  # noqa: B009, for mypy
        assert option.name in listed
        default = option.default
        if isinstance(default, (bool, int, str)) and default != "":
            assert listed[option.name].strip("`") == (
                str(default).lower() if isinstance(default, bool) else str(default)
            )


def test_the_table_of_contributing_names_every_module() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page[page.index("| folder or file") : page.index("`examples/alerts.py`")]
    named = set(re.findall(r"`(?:serde_chain/)?(\w+)(?:\.py|/)?`", table)) | {"testing"}
    modules = {
        path.stem
        for path in (ROOT / "serde_chain").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert modules - named == {"__init__"}


# Of a file or folder that is named on a page, what its path begins with; the packages' own names may be left out.
PLACES = ("serde_chain/", "payload_stores/", "tests/", "docs/", "benchmarks/", "requirements/")
INSIDE = ("stages/", "clients/", "wire/", "schemas/", "spark/", "arrow/", "testing/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`([\w./-]+)`", text)
    paths = [ROOT / path for path in named if path.startswith(PLACES)]
    paths += [ROOT / "serde_chain" / path for path in named if path.startswith(INSIDE)]
    paths += [page.parent / link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)]
    assert [str(path) for path in paths if not path.exists()] == []


def test_the_changelog_names_pages_that_exist() -> None:
    named = re.findall(r"(?<![/\w`])([a-z][\w/-]*\.md)\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / "docs" / name).exists() and not (ROOT / name).exists()] == []


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text) <= 9_000
    assert text.partition("## Documentation")[2].partition("\n\n[CHANGELOG")[0].count("](") <= 12
    first, _, _ = text.partition("\n## ")
    assert all(part in first for part in ("```properties", "![", "pip install 'serde-chain["))


INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
CONTENTS = [
    page for tree in re.findall(r"^```{toctree}\n(.*?)```", INDEX, re.DOTALL | re.MULTILINE)
    for page in re.findall(r"^[\w/-]+$", tree, re.MULTILINE)
]  # fmt: skip
# Pages to look something up in; all others are read from top to bottom.
REFERENCE = {"api/index", "command-line", "configuration", "limits", "troubleshooting", "wire-formats"}


def test_the_contents_are_short() -> None:
    assert len(CONTENTS) == len(set(CONTENTS)) <= 36


@pytest.mark.parametrize("name", sorted({*CONTENTS} - REFERENCE))
def test_a_page_is_read_in_ten_minutes(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.DOTALL | re.MULTILINE)
    assert len([word for word in prose.split() if re.search(r"\w", word)]) <= 1_800


@pytest.mark.parametrize("path", ["payload_stores/base/store.py", "serde_chain/base/stage.py"])
def test_a_contract_fits_on_two_screens(path: str) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 250


def released() -> bool:
    """Whether CHANGELOG.md has a version."""
    return bool(re.search(r"^## \[\d", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE))


# Of other packages, and aiokafka's: they raise the errors of records.
RAISING = {"DeserializingConsumer", "AIOKafkaConsumer", "KafkaConsumer"}


def unchecked(code: str) -> list[str]:
    """What a program reads without asking the messages for their errors."""
    nodes = list(ast.walk(ast.parse(code)))
    raising = RAISING | ({"Consumer"} if "from serde_chain.clients.aiokafka import" in code else set())
    bound: list[tuple[str, ast.expr]] = []
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.NamedExpr(target=ast.Name(name), value=value)
                | ast.withitem(optional_vars=ast.Name(name), context_expr=value)
                | ast.For(target=ast.Name(name), iter=value)
                | ast.AsyncFor(target=ast.Name(name), iter=value)
                | ast.comprehension(target=ast.Name(name), iter=value)
            ):
                bound.append((name, value.value if isinstance(value, ast.Await) else value))
    clients = {
        name: made[1] for name, value in bound if (made := re.match(r"(?:\w+\.)*(\w+)[(\[]", ast.unparse(value)))
    }
    asked = Counter(
        node.func.value.id
        for node in nodes
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "error" and isinstance(node.func.value, ast.Name)
    )
    found = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(client), attr="poll" | "consume")):
                read: ast.expr = node
            case ast.For(iter=ast.Name(client) as read) | ast.AsyncFor(iter=ast.Name(client) as read):
                if not clients.get(client, "").endswith("Consumer"):
                    continue  # over messages
            case _:
                continue
        if clients.get(client) in raising or clients.get(client, client).lower().endswith("producer"):
            continue
        names = [name for name, value in bound if value is read]
        names += [name for name, value in bound if isinstance(value, ast.Name) and value.id in names]
        if any(asked[name] for name in names):
            asked.subtract([next(name for name in names if asked[name])])
        else:
            found.append(ast.unparse(read))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_look_at_the_errors_of_messages(page: Path) -> None:
    # Of a topic that does not exist, a message has the error's text as its value: programs would print that, or wait.
    for code in python_blocks(page.read_text(encoding="utf-8")):
        assert unchecked(code) == [], code
        assert "returns_errors=True" not in code or "isinstance(record.value, Exception)" in code, code


@pytest.mark.parametrize(
    ("client", "loop"),
    [
        ("Consumer", "message = it.poll(1)"),
        ("Consumer[Alert]", "batch = it.consume(100, 1)\nfor message in batch: pass"),
        ("ShareConsumer", "for message in it.poll(1): pass"),
        ("serde_chain.Consumer", "while (message := it.poll(1)) is None: pass"),
        ("AsyncConsumer", "async for message in it: pass"),
        ("AsyncConsumer", "message = await it.poll(1.0)"),
        ("Consumer", "values = [message.value() for message in it.consume(5)]"),
    ],
)
def test_programs_that_do_not_are_found(client: str, loop: str) -> None:
    program = "async def main():\n    {} = {}({{}})\n    {}".format("it", client, loop.replace("\n", "\n    "))
    assert unchecked(program) != []
    assert unchecked(program + "\n    if message.error(): raise SystemExit(message.error())") == []
    assert unchecked(program.replace(client, "KafkaConsumer").replace("serde_chain.", "")) == []


def test_until_a_release_one_banner_says_how_to_install() -> None:
    """The site has it on each page, by docs/conf.py; the README has a sentence, which goes with the first version."""
    told = "Until the first release"
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        count = page.read_text(encoding="utf-8").count(told)
        assert count == (1 if page.name == "README.md" and not released() else 0), page.name


def test_what_is_published_is_of_one_version() -> None:
    """Step 3 of a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == project["version"]
    materials = json.loads((ROOT / "sbom.cdx.json").read_text(encoding="utf-8"))["metadata"]["component"]
    assert materials["version"] == project["version"]
    recipe = yaml.safe_load((ROOT / "recipes/serde-chain/recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == project["version"]
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {to}" for name, to in project["scripts"].items()]
    if released():
        assert project["urls"].keys() >= {"Source", "Documentation", "Changelog", "Issues"}


def test_the_recipe_for_conda_knows_the_lowest_versions() -> None:
    """Those of the extras; two of the packages have another name there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [Requirement(line) for lines in project["optional-dependencies"].values() for line in lines]
    lowest = {requirement.name: str(requirement.specifier) for requirement in extras if not requirement.extras}
    recipe = yaml.safe_load((ROOT / "recipes/serde-chain/recipe.yaml").read_text(encoding="utf-8"))
    constraints = dict(line.split() for line in recipe["requirements"]["run_constraints"])
    assert constraints.pop("python-confluent-kafka") == lowest["confluent-kafka"]
    for name, versions in constraints.items():
        assert set(versions.split(",")) == set(lowest[name].split(",")), name
