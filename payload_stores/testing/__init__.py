"""For authors of payload stores and of their users: a conformance suite, and a store that fails on demand.

Needs pytest and hypothesis: ``pip install 'serde-chain[testing]'``.

A new store is tested against the whole contract with a few lines::

    import pytest
    from payload_stores.testing import PayloadStoreTests

    class TestMyStore(PayloadStoreTests):
        store_class = MyStore                 # or its registered name

        @pytest.fixture
        def config(self, tmp_path):           # a user's configuration; fresh for every test
            return {"my.path": str(tmp_path)}

Tests of missing capabilities (delete, list, stream) are skipped; present ones must work. One test draws sequences of
all kinds of calls (Hypothesis) and compares the store with a dictionary.
"""

from payload_stores.plugins import require

# Before the import, so that a failed assert shows its values.
require("pytest", "testing").register_assert_rewrite("payload_stores.testing.suite")

from payload_stores.testing.faults import FaultyStore, Toxic  # noqa: E402
from payload_stores.testing.suite import Network, PayloadStoreFaultTests, PayloadStoreTests  # noqa: E402

__all__ = ["FaultyStore", "Network", "PayloadStoreFaultTests", "PayloadStoreTests", "Toxic"]
