"""Certificates of Flux, after the case list of spec 02 section 16.9 (numbers in the names)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.constants import CURVE_CERTIFICATE_GENERATOR
from trainwright.cluster.curve_certificate import (
    CurveKeyPair,
    build_certificate,
    encode_z85,
    generate_key_pair,
)
from trainwright.cluster.generators import GENERATORS

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def decode_z85(text: str) -> bytes:
    """Return the bytes of a text in Z85. Source: ZeroMQ RFC 32."""
    groups = (text[start : start + 5] for start in range(0, len(text), 5))
    return b"".join(
        sum(LETTERS.index(letter) * 85 ** (4 - place) for place, letter in enumerate(group)).to_bytes(
            4, "big"
        )
        for group in groups
    )


ENCODED = {
    "13: 32 bytes are 40 letters": (bytes(32), "0" * 40),
    "14: three bytes": (b"abc", ""),
    "15: four zeros": (bytes(4), "00000"),
    "nothing": (b"", ""),
    "the example of RFC 32": (bytes.fromhex("864FD26FB559F75B"), "HelloWorld"),
    "the largest": (b"\xff" * 4, "%nSc0"),
}


@pytest.mark.parametrize(("data", "expected"), ENCODED.values(), ids=ENCODED)
def test_z85(data: bytes, expected: str) -> None:
    assert encode_z85(data) == expected


@given(st.lists(st.binary(min_size=4, max_size=4)).map(b"".join))
def test_what_was_encoded_can_be_decoded(data: bytes) -> None:
    assert decode_z85(encode_z85(data)) == data


def test_16_the_text_of_a_certificate() -> None:
    pair = CurveKeyPair(public=bytes(32), secret=b"\xff" * 32)
    lines = build_certificate("job", pair).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "",
        "metadata",
        '    name = "job"',
        "curve",
        '    public-key = "' + "0" * 40 + '"',
        '    secret-key = "' + "%nSc0" * 8 + '"',
    ]


def test_a_secret_key_is_not_shown() -> None:
    pair = CurveKeyPair(public=bytes(32), secret=b"\xff" * 32)
    assert repr(pair) == f"CurveKeyPair(public={'0' * 40!r})"


# Pairs from the manual page zmq_curve(7).
KNOWN = {
    "server": ("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"),
    "client": ("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"),
}


@pytest.mark.parametrize(("public", "secret"), KNOWN.values(), ids=KNOWN)
def test_zeromqs_keys_are_x25519_keys(public: str, secret: str) -> None:
    x25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
    key = x25519.X25519PrivateKey.from_private_bytes(decode_z85(secret))
    assert encode_z85(key.public_key().public_bytes_raw()) == public


def test_a_certificate_has_a_pair_of_its_own_each_time() -> None:
    x25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
    first, second = (GENERATORS[CURVE_CERTIFICATE_GENERATOR]("demo") for _ in range(2))
    assert first.keys() == second.keys() == {"curve.cert"}
    assert first != second
    text = first["curve.cert"].decode()
    assert '\n    name = "demo"\n' in text
    public, secret = (decode_z85(found) for found in re.findall(r'-key = "(.{40})"', text))
    key = x25519.X25519PrivateKey.from_private_bytes(secret)
    assert key.public_key().public_bytes_raw() == public


def test_no_two_pairs_are_equal() -> None:
    pytest.importorskip("cryptography")
    assert generate_key_pair() != generate_key_pair()
