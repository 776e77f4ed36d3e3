"""Topics and stores with payloads in use and orphans."""

from tests.jobs.conftest import Config, Send, config, folder, payload, send, store, stored

__all__ = ["Config", "Send", "config", "folder", "payload", "send", "store", "stored"]
