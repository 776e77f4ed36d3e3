"""Responses that are no pages: files to save, images, and the files of the pages themselves."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from serde_chain.cli.browse.preview import Image
from serde_chain.cli.files import file_name


def displayed(image: Image, message: Any) -> Response:
    """An image to display, or to save where browsers cannot display it."""
    shown = None if image.media_type is None else image.shown
    return saved(image, message) if shown is None else Response(shown, media_type=image.media_type)


def saved(image: Image, message: Any) -> Response:
    """An image to save."""
    return download(image.data, file_name(message, image.suffix))


def attached(name: str) -> dict[str, str]:
    """The headers of a file to save, whose name has safe characters only."""
    return {"content-disposition": f'attachment; filename="{name}"'}


def download(data: bytes, name: str) -> Response:
    """A file to save."""
    return Response(data, media_type="application/octet-stream", headers=attached(name))


async def static(name: str, media_type: str, _request: Request) -> Response:
    """A file of the pages themselves."""
    text = files("serde_chain.cli.browse").joinpath(name).read_text(encoding="utf-8")
    return Response(text, media_type=media_type)


async def no_icon(_request: Request) -> Response:
    """The icon, which browsers request: there is none."""
    return Response(status_code=204)
