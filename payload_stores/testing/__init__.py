"""For authors of payload stores and of their users: a conformance suite, and a store that fails on demand.

Needs pytest and hypothesis: ``pip install 'serde-chain[testing]'``.

A new store is tested against the whole contract with a few lines::

    import pytest
    from payload_stores.testing import PayloadStoreTests

    class TestMyStore(PayloadStoreTests):
        store_class = MyStore                 # or the name that it is registered under

        @pytest.fixture
        def config(self, tmp_path):           # what a user would configure; fresh for every test
            return {"my.path": str(tmp_path)}

What a store cannot do (delete, list, stream) is skipped; what it can do has to work. One of the tests makes sequences
of calls of all kinds (Hypothesis), and compares the store with a dictionary.
"""

from payload_stores.plugins import require

# Before the import, so that a failed assert shows its values.
require("pytest", "testing").register_assert_rewrite("payload_stores.testing.suite")

from payload_stores.testing.faults import FaultyStore, Toxic  # noqa: E402
from payload_stores.testing.suite import Network, PayloadStoreFaultTests, PayloadStoreTests  # noqa: E402

__all__ = ["FaultyStore", "Network", "PayloadStoreFaultTests", "PayloadStoreTests", "Toxic"]
