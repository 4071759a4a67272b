"""The page's files, read once into memory: what is not among them has no path that leads to it."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.answers import RefusalError

FOLDER = Path(__file__).parent / "static"
INDEX = "/static/index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
"""Types of files that are served; others, such as licences, stay where they are."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent."""

    plain: bytes
    packed: bytes
    type: str
    tag: str


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Return the files of the page by path; ``/`` is index.html."""
    found = {
        f"/static/{path.relative_to(folder).as_posix()}": _file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }
    return found | ({"/": found[INDEX]} if INDEX in found else {})


def _file(path: Path) -> PageFile:
    plain = path.read_bytes()
    tag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
    return PageFile(plain, gzip.compress(plain, 9, mtime=0), TYPES[path.suffix], tag)


async def page(request: Request) -> Response:
    """Send a file of the page, packed where the browser takes that; nothing where it has it."""
    held: dict[str, PageFile] = request.state.files
    file = held.get(request.scope["path"])
    if file is None:
        raise RefusalError(404, "path", "must be one that there is")
    headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers=headers | {"content-encoding": "gzip"}, media_type=file.type)
    return Response(file.plain, headers=headers, media_type=file.type)
