"""The conformance suite, by subject."""

from payload_stores.testing.suite.machine import MachineTests
from payload_stores.testing.suite.network import Network, PayloadStoreFaultTests
from payload_stores.testing.suite.optional import OptionalTests
from payload_stores.testing.suite.payloads import PayloadTests
from payload_stores.testing.suite.references import ReferenceTests

__all__ = ["Network", "PayloadStoreFaultTests", "PayloadStoreTests"]


class PayloadStoreTests(PayloadTests, ReferenceTests, OptionalTests, MachineTests):
    """The promises of every payload store; see :mod:`payload_stores.testing` for how to use it."""
