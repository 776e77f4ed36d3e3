"""A server for hop's offload API over any payload store, for use with any Kafka broker.

    app = OffloadApp(open_store("s3", config), Path("/var/lib/offload"), FileCredentials(…), BrokerAcls(…))
    serve(app, host="127.0.0.1", port=8443, tls=Tls(certificate, key))

From the command line: ``serde-chain offload-server run``. Install with ``pip install 'serde-chain[offload-server]'``.
"""

from payload_stores.plugins import require

for _module in ("starlette", "uvicorn", "scramp", "prometheus_client"):
    require(_module, "offload-server")

from payload_stores.offload_server.acls import (  # noqa: E402  after the check
    Authorizer,
    BrokerAcls,
    FileAcls,
    SupportsAnyTopic,
    SupportsCheck,
    SupportsRefresh,
)
from payload_stores.offload_server.app import OffloadApp  # noqa: E402
from payload_stores.offload_server.credentials import FileCredentials, add_user  # noqa: E402
from payload_stores.offload_server.files import SupportsReload  # noqa: E402
from payload_stores.offload_server.requests import Limits  # noqa: E402
from payload_stores.offload_server.runner import Tls, serve  # noqa: E402
from payload_stores.offload_server.tokens import FileTokens, TokenVerifier  # noqa: E402

__all__ = [
    "Authorizer",
    "BrokerAcls",
    "FileAcls",
    "FileCredentials",
    "FileTokens",
    "Limits",
    "OffloadApp",
    "SupportsAnyTopic",
    "SupportsCheck",
    "SupportsRefresh",
    "SupportsReload",
    "Tls",
    "TokenVerifier",
    "add_user",
    "serve",
]
