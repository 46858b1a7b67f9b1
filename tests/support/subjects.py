"""Certificates with subjects of every kind, self-signed."""

from __future__ import annotations

import random
import warnings
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

if TYPE_CHECKING:
    from collections.abc import Sequence

CN, OU, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME
PLAIN = _ASN1Type.PrintableString
UNKNOWN = ObjectIdentifier("1.3.6.1.4.1.55555.2999.1")


def attribute(
    oid: ObjectIdentifier, value: str, kind: _ASN1Type | None = None
) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, kind, _validate=False)


@cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(*rdns: Sequence[x509.NameAttribute[str]]) -> bytes:
    """The DER of a certificate with these RDNs, in the order of the certificate."""
    subject = x509.Name([x509.RelativeDistinguishedName(rdn) for rdn in rdns])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([attribute(CN, "issuer")]))
        .public_key(_key().public_key())
        .serial_number(7)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    )
    return builder.sign(_key(), hashes.SHA256()).public_bytes(Encoding.DER)


KNOWN: dict[str, bytes] = {
    "CN=alice,OU=billing,O=Example": certificate(
        [attribute(ORG, "Example")], [attribute(OU, "billing")], [attribute(CN, "alice")]
    ),
    # A SET is sorted by its encoding.
    "CN=a+OU=b,C=NL": certificate(
        [attribute(NameOID.COUNTRY_NAME, "NL", PLAIN)], [attribute(CN, "a"), attribute(OU, "b")]
    ),
    r"CN=Lu\,ke \"the\" \+ \<sky\>\; \\ \= \#": certificate(
        [attribute(CN, 'Lu,ke "the" + <sky>; \\ = #')]
    ),
    r"CN=\ \ blanks\ ": certificate([attribute(CN, "  blanks ")]),
    r"CN=\#hash": certificate([attribute(CN, "#hash")]),
    "CN=Jürgen 漢字 \U0001f600": certificate([attribute(CN, "Jürgen 漢字 \U0001f600")]),
    "1.2.840.113549.1.9.1=#160b6140622e6578616d706c65,CN=a": certificate(
        [attribute(CN, "a")],
        [attribute(NameOID.EMAIL_ADDRESS, "a@b.example", _ASN1Type.IA5String)],
    ),
    "UID=u1,DC=example,DC=com": certificate(
        [attribute(NameOID.DOMAIN_COMPONENT, "com", _ASN1Type.IA5String)],
        [attribute(NameOID.DOMAIN_COMPONENT, "example", _ASN1Type.IA5String)],
        [attribute(NameOID.USER_ID, "u1")],
    ),
    "STREET=Main 1,L=Town,ST=State": certificate(
        [attribute(NameOID.STATE_OR_PROVINCE_NAME, "State")],
        [attribute(NameOID.LOCALITY_NAME, "Town")],
        [attribute(NameOID.STREET_ADDRESS, "Main 1")],
    ),
    "": certificate(),
    # Java reads it as UTF-8.
    r"CN=\00w\00i\00d\00e": certificate([attribute(CN, "wide", _ASN1Type.BMPString)]),
    "1.3.6.1.4.1.55555.2999.1=#0c0178": certificate([attribute(UNKNOWN, "x")]),
}
"""Subjects of case 10; Java confirms the texts in a test of its own."""

ALPHABET = 'ab Z9,+"\\<>;#=é漢\U0001f600/.*$-_@'
OIDS = (
    *(CN, OU, ORG, UNKNOWN, NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.EMAIL_ADDRESS),
    *(NameOID.SURNAME, NameOID.SERIAL_NUMBER, NameOID.TITLE, NameOID.LOCALITY_NAME),
)


def random_subjects(count: int, seed: int) -> list[bytes]:
    draw = random.Random(seed)

    def one() -> x509.NameAttribute[str]:
        text = "".join(draw.choices(ALPHABET, k=draw.randint(1, 9)))
        kind = draw.choice([_ASN1Type.UTF8String, _ASN1Type.BMPString])
        # Beyond ASCII a BMPString is rarely UTF-8, as which Java reads it.
        return attribute(draw.choice(OIDS), text, kind if text.isascii() else _ASN1Type.UTF8String)

    def rdn() -> list[x509.NameAttribute[str]]:
        by_oid = {part.oid: part for part in (one() for _ in range(draw.choice([1, 1, 1, 2, 3])))}
        return list(by_oid.values())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lengths that standards forbid
        return [certificate(*(rdn() for _ in range(draw.randint(0, 4)))) for _ in range(count)]
