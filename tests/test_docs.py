"""The list of configuration keys is that of the code. That code on pages runs, is shown in test_pages.py."""

import re
from pathlib import Path

from payload_stores.base import PayloadStore
from payload_stores.plugins import import_object
from payload_stores.registry import STORES
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS

ROOT = Path(__file__).parents[1]


def test_configuration_page_lists_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9_.*]+)` \| ([^|]*?) *\|", page, re.MULTILINE))
    paths = {*SERIALIZERS.builtins.values(), *DESERIALIZERS.builtins.values(), *STORES.builtins.values()}
    classes = [PayloadStore, *(import_object(path) for path in paths)]
    for option in {option for cls in classes for option in getattr(cls, "options")}:  # noqa: B009, for mypy
        assert option.name in listed
        default = option.default
        if isinstance(default, (bool, int, str)) and default != "":
            assert listed[option.name].strip("`") == str(default).lower()
