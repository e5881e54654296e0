"""CURVE certificates: the pair of keys by which the brokers of a Flux instance know and hide from others.

All brokers of a job have the same pair. ZeroMQ's CURVE keys are X25519 keys, written in Z85; Flux reads them
from a file in ZeroMQ's property language, two sections of `name = "value"`.
Source: spec 02 section 9.7; ZeroMQ RFC 26 (CurveZMQ), RFC 32 (Z85).
"""

from __future__ import annotations

from typing import Final

import msgspec

from trainwright.errors import MissingPackage

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BYTES, _LETTERS = 4, 5  # Z85 writes four bytes as five letters


class CurveKeyPair(msgspec.Struct, frozen=True):
    """A CURVE key pair, as its 32 bytes each; the secret one is not to be shown."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"CurveKeyPair(public={encode_z85(self.public)!r})"


def generate_key_pair() -> CurveKeyPair:
    """Return a new pair, of random numbers of the operating system."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ModuleNotFoundError as error:
        raise MissingPackage("making the certificate of Flux", "cryptography", "local") from error

    key = X25519PrivateKey.generate()
    return CurveKeyPair(public=key.public_key().public_bytes_raw(), secret=key.private_bytes_raw())


def build_certificate(name: str, pair: CurveKeyPair) -> str:
    """Return the text of a secret certificate. `name` is letters, digits, hyphens and dots."""
    return (
        "# Secret CURVE certificate of ZeroMQ.\n"
        "# Whoever has it can join the Flux instance of this job.\n"
        "\n"
        "metadata\n"
        f'    name = "{name}"\n'
        "curve\n"
        f'    public-key = "{encode_z85(pair.public)}"\n'
        f'    secret-key = "{encode_z85(pair.secret)}"\n'
    )


def encode_z85(data: bytes) -> str:
    """Return the bytes in Z85: five letters for each four; empty where their number is no multiple of 4."""
    if len(data) % _BYTES:
        return ""
    return "".join(
        _encode_group(int.from_bytes(data[start : start + _BYTES], "big"))
        for start in range(0, len(data), _BYTES)
    )


def _encode_group(number: int) -> str:
    letters = ""
    for _ in range(_LETTERS):
        number, digit = divmod(number, len(_ALPHABET))
        letters = _ALPHABET[digit] + letters
    return letters
