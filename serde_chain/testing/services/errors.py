"""Errors of fetching and starting real servers.

ServiceError
├── ServiceMissingError     something has to be installed first: Java, Go, a Python package
├── ServiceDownloadError    jars or programs could not be fetched or built
└── ServiceStartError       a server ended, or was not ready in time
"""


class ServiceError(Exception):
    """A server for tests or the demo is not available; the message says what to do."""


class ServiceMissingError(ServiceError):
    """Something that has to be installed first is not there."""


class ServiceDownloadError(ServiceError):
    """A part of the test stack could not be fetched or built."""


class ServiceStartError(ServiceError):
    """A server ended at its start, or was not ready before its deadline."""
