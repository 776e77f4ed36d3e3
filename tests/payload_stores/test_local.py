"""The store in a folder."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from payload_stores.testing import PayloadStoreTests


class TestLocalStore(PayloadStoreTests):
    store_class = "local"

    @pytest.fixture
    def config(self, tmp_path: Path) -> Mapping[str, object]:
        return {"local.path": str(tmp_path / "päy loads%41")}
