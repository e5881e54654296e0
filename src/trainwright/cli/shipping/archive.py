"""A tree as one archive. Pure: the same entries are the same bytes, wherever and whenever that is.

GNU tar format, gzip-compressed: GNU tar, busybox and Python unpack it, with names of any length and any
bytes. Times are fixed, not at 1970, because tools that make zip files refuse times before 1980. Files belong
to whoever unpacks them.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable

from trainwright.cli.shipping.tree import Entry

MOMENT = 315_619_200  # 1980-01-02T00:00:00Z
_LEVEL = 9


def build_archive(entries: Iterable[Entry]) -> bytes:
    """Return the archive of the entries, sorted by path."""
    tar = io.BytesIO()
    with tarfile.open(
        fileobj=tar, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for entry in sorted(entries, key=lambda entry: entry.path):
            archive.addfile(
                _build_header(entry), None if entry.content is None else io.BytesIO(entry.content)
            )
    # Without a name and a time in the header: the archive is named by its bytes.
    return gzip.compress(tar.getvalue(), compresslevel=_LEVEL, mtime=0)


def _build_header(entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.path)
    header.mtime = MOMENT
    header.mode = entry.mode
    if entry.content is not None:
        header.size = len(entry.content)
    elif entry.target is not None:
        header.type = tarfile.SYMTYPE
        header.linkname = entry.target
    else:
        header.type = tarfile.DIRTYPE
    return header
