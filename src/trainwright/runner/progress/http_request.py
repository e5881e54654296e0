"""HTTP/1.1 requests from an asyncio stream, for servers with one small POST on loopback.

Reads what RFC 9112 lets a client send: bodies by length or in chunks, `Expect: 100-continue`, connections
that are kept. A body is read up to a limit and no further; what cannot be understood is `Malformed`.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus

import msgspec

LINE_LIMIT_BYTES = 16_384  # for asyncio.start_server(limit=...): the longest line of a head
_MAX_HEADERS = 100
_TARGET = re.compile(r"[\x21-\x7e]+")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    `headers` has lower-case names; lines of one name are joined by commas. `body` has at most one byte more
    than the limit. `is_last` says that the connection cannot take another request: the client wants it so, or
    the body was not read to its end.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    is_last: bool = False


class Malformed(Exception):
    """Not a request that RFC 9112 allows, or one with a line or a head beyond all measure."""


async def read_request(
    start_line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_body_bytes: int
) -> Request:
    """Read the rest of a request whose first line is there.

    Raises Malformed, EOFError where the client went away in the middle.
    """
    method, target, version = _parse_start_line(start_line)
    headers = await _read_headers(reader)
    wants_close = version == "HTTP/1.0" or "close" in headers.get("connection", "").lower()
    length = _parse_length(headers)
    if length is not None and length > max_body_bytes:
        return Request(method=method, target=target, headers=headers, is_last=True)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if length is not None:
        body = await reader.readexactly(length)
    else:
        body = await _read_chunks(reader, max_body_bytes)
    is_last = wants_close or len(body) > max_body_bytes
    return Request(method=method, target=target, headers=headers, body=body, is_last=is_last)


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """Return one line without its end. Raises EOFError where the connection ends, Malformed if too long."""
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise Malformed("a line is too long") from error
    return line.rstrip(b"\r\n")


def build_response(code: int, body: bytes, *, is_last: bool) -> bytes:
    """Return a whole response with a JSON body."""
    head = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(["Connection: close"] if is_last else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def _parse_start_line(line: bytes) -> tuple[str, str, str]:
    parts = line.decode("latin-1").split(" ")
    if len(parts) != 3 or parts[2] not in {"HTTP/1.0", "HTTP/1.1"} or not _TARGET.fullmatch(parts[1]):
        raise Malformed("the request line makes no sense")
    return parts[0], parts[1], parts[2]


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = await read_line(reader)
        if not line:
            return headers
        field = _FIELD.fullmatch(line.decode("latin-1"))
        if field is None:
            raise Malformed("a header makes no sense")
        name = field[1].lower()
        headers[name] = f"{headers[name]}, {field[2]}" if name in headers else field[2]
    raise Malformed("there are too many headers")


def _parse_length(headers: dict[str, str]) -> int | None:
    """Return the declared length of the body, 0 where none is declared, None for a body in chunks."""
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    if encoding is not None:
        if length is not None or encoding.lower() != "chunked":
            raise Malformed("the length of the body is ambiguous")
        return None
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise Malformed("Content-Length is not a number")
    return int(length)


async def _read_chunks(reader: asyncio.StreamReader, max_body_bytes: int) -> bytes:
    """Return the body, or its beginning with one byte more than the limit."""
    body = bytearray()
    while True:
        size_text = (await read_line(reader)).split(b";")[0].strip()
        try:
            size = int(size_text, 16) if size_text.isalnum() else -1
        except ValueError:
            size = -1
        if size < 0:
            raise Malformed("a chunk has no size")
        if size == 0:
            await _read_headers(reader)  # trailers
            return bytes(body)
        body += await reader.readexactly(min(size, max_body_bytes + 1 - len(body)))
        if len(body) > max_body_bytes:
            return bytes(body)
        if await read_line(reader):
            raise Malformed("a chunk is longer than its size")
