"""Data that nobody may be able to foresee: what the Secrets that a framework asks for are filled with.

Render is a function of job and runtime and cannot make a key; it says which generator makes one
(`frameworks.contract.GeneratedSecret`), and `cluster.secrets` calls it when the Secret is created. What a
generator returns goes into the Secret, and nowhere else: no log, no error, no output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trainwright.api.constants import (
    CURVE_CERTIFICATE,
    CURVE_CERTIFICATE_GENERATOR,
    SSH_KEY_GENERATOR,
    SSH_PRIVATE_KEY,
    SSH_PUBLIC_KEY,
)
from trainwright.cluster.curve_certificate import build_certificate, generate_key_pair
from trainwright.errors import MissingPackage


def generate_ssh_key(owner: str) -> dict[str, bytes]:  # noqa: ARG001 (nothing in a key says whose it is)
    """Return a new key pair for ssh: ECDSA on P-521, as the peer makes it, which FIPS modes accept as well.

    The private key is PEM (SEC 1), the public one a line of an authorized_keys file. Source: spec 02
    section 6.3.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError as error:
        raise MissingPackage("making ssh keys", "cryptography", "local") from error

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {SSH_PRIVATE_KEY: private, SSH_PUBLIC_KEY: public + b"\n"}


def generate_curve_certificate(owner: str) -> dict[str, bytes]:
    """Return a new certificate for the brokers of a Flux job, which carries the name of its owner.

    Source: spec 02 section 9.7.
    """
    return {CURVE_CERTIFICATE: build_certificate(owner, generate_key_pair()).encode()}


# Name of the generator -> what makes the data of a Secret, by key, given the name of what the Secret belongs
# to. A new one is one function and one line.
GENERATORS: Final[Mapping[str, Callable[[str], Mapping[str, bytes]]]] = {
    SSH_KEY_GENERATOR: generate_ssh_key,
    CURVE_CERTIFICATE_GENERATOR: generate_curve_certificate,
}
