"""Certificates as values: what is made, when it has to be renewed, and what a renewal keeps."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainwright.operator.certificate_files import follow_files
from trainwright.operator.certificates import (
    Certificates,
    build_certificates,
    build_secret_data,
    find_fault,
    is_signed_by_former_ca,
    list_service_hosts,
    parse_secret,
)
from trainwright.operator.serving import CertificateSlot

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = list_service_hosts("operator", "trainers")
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def made() -> Certificates:
    return build_certificates(HOSTS, NOW)


def read(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def count(bundle: bytes) -> int:
    return len(x509.load_pem_x509_certificates(bundle))


def test_the_hosts_are_all_names_of_the_service() -> None:
    assert HOSTS == (
        "operator.trainers.svc",
        "operator.trainers.svc.cluster.local",
        "operator.trainers",
        "operator",
    )


def test_the_ca_is_one_and_lives_ten_years(made: Certificates) -> None:
    ca = read(made.ca_bundle)
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)

    assert (constraints.critical, constraints.value.ca) == (True, True)
    assert ca.subject.rfc4514_string() == "O=kubeflow-trainer,CN=kubeflow-trainer-ca"
    assert ca.not_valid_before_utc == NOW - timedelta(hours=1)
    assert ca.not_valid_after_utc == NOW + 10 * 365 * DAY


def test_the_certificate_is_for_the_service_and_for_serving_alone(made: Certificates) -> None:
    certificate = read(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    certificate.verify_directly_issued_by(read(made.ca_bundle))
    assert names.get_values_for_type(x509.DNSName) == list(HOSTS)
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert certificate.not_valid_after_utc == NOW + 365 * DAY
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == HOSTS[0]


def test_a_name_too_long_for_a_subject_stands_among_the_hosts_alone() -> None:
    hosts = list_service_hosts("kubeflow-trainer-controller-manager", "n" * 63)
    made = build_certificates(hosts, NOW)

    assert find_fault(made, hosts, NOW) is None


def test_addresses_are_hosts_too() -> None:
    hosts = ("127.0.0.1", "::1", "localhost")
    made = build_certificates(hosts, NOW)
    names = read(made.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert find_fault(made, hosts, NOW) is None


def test_new_certificates_are_good_until_90_days_before_the_end(made: Certificates) -> None:
    end = NOW + 365 * DAY
    assert find_fault(made, HOSTS, NOW) is None
    assert find_fault(made, HOSTS, end - 91 * DAY) is None
    assert find_fault(made, HOSTS, end - 90 * DAY) == "the certificate ends on 2027-03-01"


def replaced(made: Certificates, **fields: bytes) -> Certificates:
    values = {name: getattr(made, name) for name in ("ca_bundle", "ca_key", "certificate", "key")}
    return Certificates(**{**values, **fields})


def test_what_does_not_belong_together_is_a_fault(made: Certificates) -> None:
    other = build_certificates(HOSTS, NOW)

    assert find_fault(replaced(made, key=other.key), HOSTS, NOW) == "the key is not that of the certificate"
    assert (
        find_fault(replaced(made, ca_bundle=other.ca_bundle), HOSTS, NOW)
        == "the certificate is not signed by the CA"
    )
    assert find_fault(made, (*HOSTS, "more.example"), NOW) == "the certificate lacks more.example"
    assert find_fault(made, HOSTS, NOW - DAY) == "the CA is valid only from 2026-02-28 on"


@pytest.mark.parametrize("field", ["ca_bundle", "certificate", "key"])
@pytest.mark.parametrize(
    "content", [b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_cannot_be_read_is_a_fault_and_is_made_anew(
    made: Certificates, field: str, content: bytes
) -> None:
    broken = replaced(made, **{field: content})

    assert (find_fault(broken, HOSTS, NOW) or "").startswith("it cannot be read")
    assert find_fault(build_certificates(HOSTS, NOW, broken), HOSTS, NOW) is None


def test_a_renewed_certificate_is_signed_by_the_same_ca(made: Certificates) -> None:
    later = NOW + 300 * DAY
    renewed = build_certificates(HOSTS, later, made)

    assert (renewed.ca_bundle, renewed.ca_key) == (made.ca_bundle, made.ca_key)
    assert renewed.certificate != made.certificate
    assert find_fault(renewed, HOSTS, later) is None


def test_a_ca_that_is_replaced_is_trusted_until_it_ends(made: Certificates) -> None:
    later = NOW + (10 * 365 - 60) * DAY
    renewed = build_certificates(HOSTS, later, made)
    after_its_end = build_certificates(HOSTS, later + 200 * DAY, renewed)

    assert find_fault(renewed, HOSTS, later) is None
    assert renewed.ca_bundle.endswith(made.ca_bundle)
    assert (count(renewed.ca_bundle), count(after_its_end.ca_bundle)) == (2, 1)
    assert after_its_end.ca_key == renewed.ca_key


def test_of_the_cas_of_a_bundle_those_after_the_first_are_former_ones(made: Certificates) -> None:
    renewed = build_certificates(HOSTS, NOW + (10 * 365 - 60) * DAY, made)
    other = build_certificates(HOSTS, NOW)

    assert is_signed_by_former_ca(made.serving, renewed.ca_bundle)
    assert not is_signed_by_former_ca(renewed.serving, renewed.ca_bundle)
    assert not is_signed_by_former_ca(other.serving, renewed.ca_bundle)
    assert not is_signed_by_former_ca(made.serving, b"nonsense")


def test_a_ca_without_its_key_is_replaced(made: Certificates) -> None:
    renewed = build_certificates(HOSTS, NOW, replaced(made, ca_key=b"lost"))

    assert find_fault(renewed, HOSTS, NOW) is None
    assert renewed.ca_bundle.endswith(made.ca_bundle)
    assert count(renewed.ca_bundle) == 2


def test_a_secret_gives_back_what_was_put_into_it(made: Certificates) -> None:
    assert parse_secret({"data": build_secret_data(made)}) == made


@pytest.mark.parametrize(
    "secret",
    [
        {},
        {"data": None},
        {"data": {"tls.crt": "eA=="}},
        {"data": {"ca.crt": "", "ca.key": "", "tls.crt": "", "tls.key": ""}},
        {"data": dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), "no base64!")},
    ],
    ids=["empty", "null", "partial", "empty values", "no base64"],
)
def test_a_secret_that_lacks_something_holds_no_certificates(secret: dict[str, object]) -> None:
    assert parse_secret(secret) is None


def test_keys_show_in_no_representation(made: Certificates) -> None:
    body = made.key.decode().splitlines()[1]

    assert body not in repr(made) + repr(made.serving)
    assert base64.b64decode(build_secret_data(made)["tls.key"]) == made.key


def test_a_certificate_that_does_not_fit_its_key_leaves_the_slot_as_it_was(made: Certificates) -> None:
    slot = CertificateSlot()
    slot.swap(made.serving)
    with pytest.raises(ssl.SSLError):
        slot.swap(replaced(made, key=build_certificates(HOSTS, NOW).key).serving)

    assert slot.certificate == made.serving


async def test_files_are_served_and_followed(tmp_path: Path) -> None:
    slot, ready = CertificateSlot(), asyncio.Event()
    first, second = (build_certificates(HOSTS, datetime.now(UTC)) for _ in range(2))
    task = asyncio.create_task(follow_files(slot, tmp_path, ready, pause_seconds=0.01))

    async def serve(made: Certificates) -> None:
        (tmp_path / "tls.key").write_bytes(made.key)
        (tmp_path / "tls.crt").write_bytes(made.certificate)
        async with asyncio.timeout(10):
            while slot.certificate != made.serving:  # noqa: ASYNC110 (files tell nobody that they change)
                await asyncio.sleep(0.01)

    try:
        await serve(first)
        (tmp_path / "tls.crt").write_bytes(b"half of a certif")
        await serve(second)
        assert ready.is_set()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
