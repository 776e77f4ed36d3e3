"""Answers of object stores that are not what they say."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any


def lying(body: bytes, said: int, total: int | None, cut: int | None = None) -> Callable[[Any], None]:
    """An answer with a body, of a length that it says, out of an object of a total size."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200 if total is None else 206)
        request.send_header("Content-Length", str(said))
        if total is not None:
            request.send_header("Content-Range", f"bytes 0-{said - 1}/{total}")
        # Said, so that the client sends its next request over another connection: this one is about to end.
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(body[:cut])

    return answer
