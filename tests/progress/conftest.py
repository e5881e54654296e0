from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


class Authority:
    """A certificate authority, and a server that has a certificate of it for `localhost`."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "ca.crt"
        key, request, signed = (str(folder / name) for name in ("ca.key", "server.csr", "server.crt"))
        new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        server_key = str(folder / "server.key")
        name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        sign = ["-CA", str(self.certificate), "-CAkey", key, "-CAcreateserial"]
        for command in (
            [*new, "-x509", "-subj", f"/CN={folder.name}", "-keyout", key, "-out", str(self.certificate)],
            [*new, *name, "-keyout", server_key, "-out", request],
            ["openssl", "x509", "-req", "-in", request, *sign, "-copy_extensions", "copy", "-out", signed],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.server.load_cert_chain(signed, server_key)


@pytest.fixture(scope="session")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: TLS; there is no openssl to make certificates with")
    return Authority(tmp_path_factory.mktemp("ours")), Authority(tmp_path_factory.mktemp("theirs"))
