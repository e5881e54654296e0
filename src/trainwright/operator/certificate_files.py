"""Serves a certificate that comes from outside, in files: mounted from a Secret of cert-manager, for example.

Apart from `certificates_keeper`, since it needs no package that makes certificates.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

from trainwright.operator.serving import CertificateSlot, read_certificate_files

log = structlog.get_logger(__name__)

FILE_CHECK_SECONDS: Final = 10.0


async def follow_files(
    slot: CertificateSlot, folder: Path, ready: asyncio.Event, *, pause_seconds: float = FILE_CHECK_SECONDS
) -> None:
    """Serve the certificate in `tls.crt` and `tls.key` of a folder, and each one that takes its place.

    Both are replaced at once where they are mounted from a Secret; a pair that does not fit is tried again.
    """
    told = ""
    while True:
        certificate = read_certificate_files(folder / "tls.crt", folder / "tls.key")
        problem = f"{folder} holds no tls.crt and tls.key" if certificate is None else ""
        if certificate is not None and certificate != slot.certificate:
            try:
                slot.swap(certificate)
            except ssl.SSLError as error:
                problem = f"the certificate in {folder} cannot be served: {error}"
            else:
                log.info("serving another certificate", certificate=certificate.fingerprint)
        if problem and problem != told:
            log.warning("no certificate", problem=problem)
        told = problem
        if slot.certificate is not None:
            ready.set()
        await asyncio.sleep(pause_seconds)
