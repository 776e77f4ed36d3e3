"""Errors of fetching and starting real servers.

ServiceError
├── ServiceMissingError     a prerequisite is not installed: Java, Go, a Python package
├── ServiceDownloadError    jars or programs could not be fetched or built
└── ServiceStartError       a server ended, or was not ready in time
"""


class ServiceError(Exception):
    """A server for tests or the demo is not available; the message says how to fix it."""


class ServiceMissingError(ServiceError):
    """A prerequisite is not installed."""


class ServiceDownloadError(ServiceError):
    """A part of the test stack could not be fetched or built."""


class ServiceStartError(ServiceError):
    """A server ended during startup, or was not ready before its deadline."""
