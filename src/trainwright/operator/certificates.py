"""Certificates of the webhook server as values: made, read from a Secret, and judged. No I/O, no clock.

A CA of our own signs a serving certificate. Both lie in one Secret, under the keys that the peer uses, so
that its certificates are taken over, and ours by it. Source: spec 01 section 2.7.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainwright.api.meta import Json
from trainwright.operator.serving import ServingCertificate

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"

CA_YEARS: Final = 10
CERTIFICATE_YEARS: Final = 1
RENEW_BEFORE: Final = timedelta(days=90)
_CLOCK_SKEW: Final = timedelta(hours=1)
_YEAR: Final = timedelta(days=365)
_KEY_BITS: Final = 2048
_ORGANIZATION: Final = "kubeflow-trainer"
_CA_NAME: Final = "kubeflow-trainer-ca"
_MAX_COMMON_NAME: Final = 64  # of X.509; the names that count are in the SAN


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """What the Secret holds, as PEM.

    `ca_bundle` begins with the CA that signs, whose key is `ca_key`; CAs that signed what other replicas may
    still serve follow it.
    """

    ca_bundle: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Show nothing of the keys."""
        return f"Certificates({self.serving.fingerprint})"

    @property
    def serving(self) -> ServingCertificate:
        """Return the pair to serve."""
        return ServingCertificate(self.certificate, self.key)


def list_service_hosts(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names under which a Service is called; the API server uses the first."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
        service,
    )


def find_fault(certificates: Certificates, hosts: Sequence[str], now: datetime) -> str | None:
    """Return why certificates have to be renewed, None where they are good for a long while."""
    try:
        chain = _read_bundle(certificates.ca_bundle)
        certificate = x509.load_pem_x509_certificate(certificates.certificate)
        key = serialization.load_pem_private_key(certificates.key, None)
    except (ValueError, TypeError) as error:
        return f"it cannot be read: {error}"
    if not chain:
        return "there is no CA"
    if certificate.public_key() != key.public_key():
        return "the key is not that of the certificate"
    if (problem := _find_ca_fault(chain[0], now)) is not None:
        return problem
    if not _is_signed_by(certificate, chain[0]):
        return "the certificate is not signed by the CA"
    if certificate.not_valid_before_utc > now:
        return f"the certificate is valid only from {certificate.not_valid_before_utc:%Y-%m-%d} on"
    if certificate.not_valid_after_utc - RENEW_BEFORE <= now:
        return f"the certificate ends on {certificate.not_valid_after_utc:%Y-%m-%d}"
    missing = [host for host in hosts if host not in _list_hosts(certificate)]
    return f"the certificate lacks {', '.join(missing)}" if missing else None


def build_certificates(
    hosts: Sequence[str], now: datetime, previous: Certificates | None = None
) -> Certificates:
    """Return new certificates; the CA is kept while it is good, and one that is replaced stays in the bundle.

    It takes a tenth of a second or more: keys are made. CAs that have ended are dropped.
    """
    bundle = _read_previous(previous)
    ca_key = _read_key(previous.ca_key) if previous is not None else None
    can_sign = ca_key is not None and bool(bundle) and bundle[0].public_key() == ca_key.public_key()
    if ca_key is not None and can_sign and _find_ca_fault(bundle[0], now) is None:
        ca = bundle[0]
    else:
        ca, ca_key = _build_ca(now)
    older = [old for old in bundle if old != ca and old.not_valid_after_utc > now]
    key, certificate = _build_serving(hosts, now, ca, ca_key)
    return Certificates(
        ca_bundle=b"".join(_encode_certificate(each) for each in (ca, *older)),
        ca_key=_encode_key(ca_key),
        certificate=_encode_certificate(certificate),
        key=_encode_key(key),
    )


def is_signed_by_former_ca(certificate: ServingCertificate, bundle: bytes) -> bool:
    """Say whether a certificate is signed by a CA of the bundle that is not the one that signs now."""
    try:
        served = x509.load_pem_x509_certificate(certificate.certificate_pem)
        cas = _read_bundle(bundle)
    except ValueError:
        return False
    signers = [_is_signed_by(served, ca) for ca in cas]
    return any(signers) and not signers[0]


def build_secret_data(certificates: Certificates) -> dict[str, str]:
    """Return the `data` of the Secret."""
    content = {
        CA_CERTIFICATE: certificates.ca_bundle,
        CA_KEY: certificates.ca_key,
        CERTIFICATE: certificates.certificate,
        KEY: certificates.key,
    }
    return {name: base64.b64encode(pem).decode() for name, pem in content.items()}


def parse_secret(secret: Json) -> Certificates | None:
    """Return what a Secret holds, None where something is missing: it is installed empty."""
    data: Mapping[str, str] = secret.get("data") or {}
    try:
        pem = {
            name: base64.b64decode(data.get(name) or "", validate=True)
            for name in (CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY)
        }
    except (binascii.Error, TypeError):
        return None
    if not all(pem.values()):
        return None
    return Certificates(
        ca_bundle=pem[CA_CERTIFICATE], ca_key=pem[CA_KEY], certificate=pem[CERTIFICATE], key=pem[KEY]
    )


def _is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _find_ca_fault(ca: x509.Certificate, now: datetime) -> str | None:
    if ca.not_valid_before_utc > now:
        return f"the CA is valid only from {ca.not_valid_before_utc:%Y-%m-%d} on"
    if ca.not_valid_after_utc - RENEW_BEFORE <= now:
        return f"the CA ends on {ca.not_valid_after_utc:%Y-%m-%d}"
    return None


def _build_ca(now: datetime) -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
        ]
    )
    builder = _begin(subject, subject, key, now, CA_YEARS)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_CA_NAME)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key


def _build_serving(
    hosts: Sequence[str], now: datetime, ca: x509.Certificate, ca_key: rsa.RSAPrivateKey
) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    name = hosts[0] if len(hosts[0]) <= _MAX_COMMON_NAME else _ORGANIZATION
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
        ]
    )
    usage = x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=False,
        crl_sign=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = (
        _begin(subject, ca.subject, key, now, CERTIFICATE_YEARS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_build_host(host) for host in hosts]), critical=False)
        .add_extension(authority, critical=False)
    )
    return key, builder.sign(ca_key, hashes.SHA256())


def _begin(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, now: datetime, years: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + years * _YEAR)
    )


def _build_host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _list_hosts(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


def _read_bundle(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def _read_previous(previous: Certificates | None) -> list[x509.Certificate]:
    try:
        return _read_bundle(previous.ca_bundle) if previous is not None else []
    except ValueError:
        return []


def _read_key(pem: bytes) -> rsa.RSAPrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, rsa.RSAPrivateKey) else None


def _encode_certificate(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _encode_key(key: rsa.RSAPrivateKey) -> bytes:
    # The form that the peer reads: "RSA PRIVATE KEY".
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
