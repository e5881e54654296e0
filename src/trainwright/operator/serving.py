"""TLS for every server of the process, with a certificate that can be exchanged while they listen.

A certificate that is loaded into a context in use does not replace one of another type of key. So each one
gets a fresh context, and the context that a server listens with hands every new connection over to the
present one. Connections that are open go on with the certificate that they began with.
"""

from __future__ import annotations

import hashlib
import ssl
import tempfile
from asyncio import sslproto
from pathlib import Path
from typing import Final

import msgspec

from trainwright.cluster.kube.sockets import OneSidedClose
from trainwright.operator.configuration import TlsSettings

_VERSIONS: Final = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_BUFFER_BYTES: Final = 32 * 1024
_HTTP: Final = "http/1.1"  # the only protocol that the servers speak

# Names of the IANA, as configurations have them, and those of OpenSSL. TLS 1.3 has no choice of suites.
_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
}
_INSECURE: Final = frozenset(
    name for name in _SUITES if name.startswith("TLS_RSA_") or name.endswith(("_CBC_SHA256",))
)
_OF_TLS_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


def bound_tls_buffers() -> None:
    """Let a TLS connection keep no more than two of its largest records, where asyncio keeps 256 KiB.

    While many jobs are created an API server opens dozens of connections to the webhooks, and keeps them.
    """
    sslproto.SSLProtocol.max_size = _BUFFER_BYTES


class ServingCertificate(msgspec.Struct, frozen=True):
    """A certificate with its chain, and its key, as PEM."""

    certificate_pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        """Show nothing of the key."""
        return f"ServingCertificate({self.fingerprint})"

    @property
    def fingerprint(self) -> str:
        """Return what tells certificates apart in a log."""
        return hashlib.sha256(self.certificate_pem).hexdigest()[:16]


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration asks for, in OpenSSL's terms. None leaves it to the library."""

    minimum_version: ssl.TLSVersion | None = None
    suites: str | None = None


def read_tls_settings(settings: TlsSettings) -> tuple[TlsOptions, list[str]]:
    """Return the options, and a warning for each setting that cannot be had or should not be asked for.

    Source: spec 01 section 6.2, `tls`.
    """
    warnings = []
    minimum = _VERSIONS.get(settings.min_version or "")
    if settings.min_version and minimum is None:
        known = ", ".join(_VERSIONS)
        warnings.append(f"tls.minVersion: {settings.min_version!r} is not known ({known}); ignored")
    chosen = []
    for name in settings.cipher_suites or ():
        if name in _OF_TLS_1_3:
            warnings.append(f"tls.cipherSuites: {name} is always on with TLS 1.3; the list is for TLS 1.2")
        elif name not in _SUITES:
            warnings.append(f"tls.cipherSuites: {name!r} is not known; ignored")
        else:
            chosen.append(_SUITES[name])
            if name in _INSECURE:
                warnings.append(f"tls.cipherSuites: {name} is insecure; leave it out")
    other = [name for name in settings.next_protos or () if name != _HTTP]
    if other:
        warnings.append(f"tls.nextProtos: only {_HTTP} is spoken here; {', '.join(other)} ignored")
    return TlsOptions(minimum_version=minimum, suites=":".join(chosen) or None), warnings


class CertificateSlot:
    """The certificate that is served at present. Listen with `context`, before or after there is one.

    A client that connects before there is a certificate gets a TLS alert.
    """

    def __init__(self, options: TlsOptions | None = None) -> None:
        self._options = options or TlsOptions()
        self._present: ssl.SSLContext | None = None
        self.certificate: ServingCertificate | None = None
        self.context = self._build_context()
        self.context.sni_callback = self._hand_over

    def swap(self, certificate: ServingCertificate) -> None:
        """Serve this certificate to every new connection. Raises ssl.SSLError where key and it do not fit."""
        if certificate == self.certificate:
            return
        context = self._build_context()
        _load(context, certificate)
        self._present, self.certificate = context, certificate

    def _hand_over(
        self,
        connection: ssl.SSLObject | ssl.SSLSocket,
        name: str | None,  # noqa: ARG002 (the ssl module's signature)
        context: ssl.SSLContext,  # noqa: ARG002
    ) -> int | None:
        if self._present is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = self._present
        return None

    def _build_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._options.minimum_version or ssl.TLSVersion.TLSv1_2
        if self._options.suites is not None:
            context.set_ciphers(self._options.suites)
        context.set_alpn_protocols([_HTTP])
        context.sslobject_class = OneSidedClose
        return context


def read_certificate_files(certificate: Path, key: Path) -> ServingCertificate | None:
    """Return the pair in two files, None where one of them does not exist (yet)."""
    try:
        return ServingCertificate(certificate.read_bytes(), key.read_bytes())
    except FileNotFoundError:
        return None


def _load(context: ssl.SSLContext, certificate: ServingCertificate) -> None:
    # The ssl module takes a certificate only from files: these are private and gone at once.
    with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
        chain, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        for path, content in ((chain, certificate.certificate_pem), (key, certificate.key_pem)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        context.load_cert_chain(chain, key)
