"""Tables of messages, with cause and remedy, for the page on troubleshooting.

They are made by the mistakes of ``tests/test_mistakes.py``, and read in the code of ``serde-chain doctor``. The page
has them between cog marks; ``make tables`` regenerates them.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

from payload_stores.errors import ContextualError
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.cli import doctor as package
from tests import test_mistakes as known

__all__ = ["at_reading", "at_start", "at_writing", "of_doctor"]

_CONTEXT = RecordContext("alerts", "value")
_CHECK = ("name", "level", "message", "change")


def at_start() -> None:
    """Print what creating a client or a chain refuses."""
    writers = {name: partial(SerializerChain.from_config, config) for name, (config, *_) in known.WRITERS.items()}
    readers = {name: partial(DeserializerChain.from_config, config) for name, (config, *_) in known.READERS.items()}
    _made({**writers, **readers, **{name: make for name, (make, *_) in known.CLIENTS.items()}})


def at_writing() -> None:
    """Print what ``produce`` refuses."""
    _made({
        name: partial(SerializerChain.from_config(config), value, _CONTEXT)
        for name, (config, value, *_) in known.VALUES.items()
    })  # fmt: skip


def at_reading() -> None:
    """Print what a record is refused for."""
    _made({
        name: partial(DeserializerChain.from_config(config), data, _CONTEXT)
        for name, (config, data, *_) in known.BYTES.items()
    })  # fmt: skip


def _made(mistakes: Mapping[str, Callable[[], object]]) -> None:
    print("| message | cause | remedy |\n|---|---|---|")
    rows: dict[str, tuple[str, str]] = {}
    for cause, make in mistakes.items():
        try:
            make()
        except ContextualError as error:
            earlier = f"{rows[error.message][0]}; " if error.message in rows else ""
            rows[error.message] = (earlier + cause, error.hint or "")
        else:
            raise AssertionError(f"no longer a mistake: {cause}")
    _print((f"`{message}`", *rest) for message, rest in rows.items())


def of_doctor() -> None:
    """Print the errors and warnings of ``serde-chain doctor``: inserted values are shown as an ellipsis."""
    print("| check | finding | remedy |\n|---|---|---|")
    rows: list[tuple[str, str, str]] = []
    for path in sorted(Path(package.__file__).parent.glob("*.py")):
        module = importlib.import_module(f"{package.__name__}.{path.stem}")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                rows += _findings(function, module)
    _print(sorted(set(rows), key=lambda row: (row[0], row[1])))


def _findings(function: ast.FunctionDef, module: ModuleType) -> Iterator[tuple[str, str, str]]:
    assignments = sorted(
        ((node.lineno, node.targets[0].id, node.value) for node in ast.walk(function)
         if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)), key=lambda each: each[0]
    )  # fmt: skip
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
            parts: dict[str | None, ast.expr] = {each.arg: each.value for each in node.keywords}
            parts.update(zip(_CHECK, node.args, strict=False))
            assigned = {name: value for line, name, value in assignments if line < node.lineno}
            level = ast.unparse(parts["level"])
            if level in {"Level.ERROR", "Level.WARNING"}:
                texts = [_text(parts.get(part), assigned, module) for part in ("name", "message", "change")]
                if texts[0] != "…" and texts[1].strip("… "):
                    yield (
                        texts[0],
                        f"`{texts[1]}`",
                        "as the finding says" if texts[2].count("…") > 2 or texts[2] == "…" else texts[2],
                    )


def _text(node: ast.AST | None, assigned: dict[str, ast.expr], module: ModuleType) -> str:  # noqa: PLR0911, a case each
    match node:
        case None | ast.Constant(value=None):
            return ""
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_text(each, assigned, module) for each in node.values)
        case ast.BinOp(op=ast.Add()):
            return _text(node.left, assigned, module) + _text(node.right, assigned, module)
        case ast.Name() if node.id in assigned:
            value = assigned[node.id]
            return _text(value, {name: each for name, each in assigned.items() if name != node.id}, module)
        case ast.FormattedValue(value=ast.Attribute(value=ast.Name(id=name), attr="name")) if hasattr(module, name):
            return str(vars(module)[name].name)  # of an option
        case _:
            return "…"


def _print(rows: Iterable[tuple[str, str, str]]) -> None:
    for row in rows:
        print("|", " | ".join(cell.replace("|", r"\|") for cell in row), "|")
