"""Free TCP ports on 127.0.0.1, and checks whether a server answers there."""

import http.client
import random
import socket

from serde_chain.testing.services.errors import ServiceStartError

HOST = "127.0.0.1"

# Below the ranges from which Linux (32768) and macOS (49152) take ports for outgoing connections, so that none of these
# takes a port between the check and the server's start.
_RANGE = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Distinct ports that are currently free.

    Args:
        count: How many ports.

    Raises:
        ServiceStartError: No free port was found.
    """
    ports: list[int] = []
    for port in random.sample(_RANGE, k=len(_RANGE)):
        if len(ports) == count:
            return ports
        if can_bind(port):
            ports.append(port)
    message = f"no {count} free TCP ports on {HOST} between {_RANGE.start} and {_RANGE.stop}"
    raise ServiceStartError(message)


def can_bind(port: int) -> bool:
    """Whether a server can listen on a port of 127.0.0.1."""
    with socket.socket() as candidate:
        # As servers do: otherwise a port is taken for a minute after a server closed its connections.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((HOST, port))
        except OSError:
            return False
    return True


def port_answers(port: int) -> bool:
    """Whether a server accepts connections on this port of 127.0.0.1."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def http_answers(port: int, path: str) -> bool:
    """Whether a server on this port of 127.0.0.1 answers a GET with success."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.HTTPStatus.BAD_REQUEST
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def require_free(port: int, name: str) -> None:
    """Refuse a chosen port on which a server cannot listen.

    Raises:
        ServiceStartError: The port is in use.
    """
    if not can_bind(port):
        message = f"the {name} server cannot start: port {port} of {HOST} is in use"
        raise ServiceStartError(f"{message}. Choose another port, or end the program that uses it")
