"""Names of certificates are those that Java writes, whatever attributes and types of values they have (X2)."""

import logging
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Name, NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type as Type
from cryptography.x509.oid import NameOID

from odradek.broker.security.authorization import warn_of_old_names, warn_of_old_quotas
from odradek.model import ConfigurationError
from odradek.security import (
    AclAuthorizer,
    AclEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    Principal,
    ResourcePattern,
    ResourceType,
    distinguished_name,
    is_loopback,
    principal_mapping,
    written_as_java_does,
)
from odradek.security.certificate_names import _dotted, escaped
from odradek.security.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS
from odradek.security.quotas import DEFAULT, QuotaEntity
from tests.world.jvm import running_jvm

KEY = ec.generate_private_key(ec.SECP256R1())
AT = datetime(2024, 1, 1, tzinfo=UTC)


def one(oid: ObjectIdentifier, value: str, kind: Type = Type.UTF8String) -> RelativeDistinguishedName:
    return RelativeDistinguishedName([NameAttribute(oid, value, kind, _validate=False)])


def common(value: str, kind: Type = Type.UTF8String) -> Name:
    return Name([one(NameOID.COMMON_NAME, value, kind)])


CN, ORG, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
SUBJECTS = [
    (Name([]), ""),
    (common("ann"), "CN=ann"),
    (
        Name([one(NameOID.COUNTRY_NAME, "DE", Type.PrintableString), one(ORG, "acme"), one(CN, "ann")]),
        "CN=ann,O=acme,C=DE",
    ),
    (
        Name([one(NameOID.STATE_OR_PROVINCE_NAME, "NW"), one(NameOID.LOCALITY_NAME, "Bonn"), one(OU, "dev")]),
        "OU=dev,L=Bonn,ST=NW",
    ),
    (
        Name([one(NameOID.DOMAIN_COMPONENT, "org", Type.IA5String), one(NameOID.STREET_ADDRESS, "1 Road")]),
        "STREET=1 Road,DC=org",
    ),
    (Name([one(NameOID.USER_ID, "u1")]), "UID=u1"),
    (
        Name([one(NameOID.EMAIL_ADDRESS, "ann@a.example", Type.IA5String), one(CN, "ann")]),
        "CN=ann,1.2.840.113549.1.9.1=#160d616e6e40612e6578616d706c65",
    ),
    (Name([one(NameOID.SERIAL_NUMBER, "4711", Type.PrintableString)]), "2.5.4.5=#130434373131"),
    (Name([one(NameOID.TITLE, "Dr")]), "2.5.4.12=#0c024472"),
    (Name([one(NameOID.GIVEN_NAME, "Ann")]), "2.5.4.42=#0c03416e6e"),
    (Name([one(NameOID.SURNAME, "Doe", Type.PrintableString)]), "2.5.4.4=#1303446f65"),
    (Name([one(NameOID.POSTAL_CODE, "53111")]), "2.5.4.17=#0c053533313131"),
    (Name([one(NameOID.DN_QUALIFIER, "q", Type.PrintableString)]), "2.5.4.46=#130171"),
    (Name([one(NameOID.PSEUDONYM, "p")]), "2.5.4.65=#0c0170"),
    (Name([one(NameOID.BUSINESS_CATEGORY, "b")]), "2.5.4.15=#0c0162"),
    (Name([one(NameOID.ORGANIZATION_IDENTIFIER, "VATDE-1")]), "2.5.4.97=#0c0756415444452d31"),
    (Name([one(NameOID.JURISDICTION_COUNTRY_NAME, "DE")]), "1.3.6.1.4.1.311.60.2.1.3=#0c024445"),
    (Name([one(ObjectIdentifier("2.999.128.5"), "x")]), "2.999.128.5=#0c0178"),
    (Name([one(ObjectIdentifier("0.9.1"), "x")]), "0.9.1=#0c0178"),
    (common("a=b"), r"CN=a\=b"),
    (common("a#b"), r"CN=a\#b"),
    (common("#a"), r"CN=\#a"),
    (common("Doe, Ann"), r"CN=Doe\, Ann"),
    (common(r'a+b"c\d<e>f;g'), r"CN=a\+b\"c\\d\<e\>f\;g"),
    (common(" a"), r"CN=\ a"),
    (common("a "), r"CN=a\ "),
    (common("  a b  "), r"CN=\ \ a b\ \ "),
    (common(" "), r"CN=\ "),
    (common("   "), r"CN=\ \ \ "),
    (common("\ra\r"), "CN=\\\ra\\\r"),
    (common("\na\n"), "CN=\na\n"),
    (common("a \n"), "CN=a \n"),
    (common("\ta\t"), "CN=\ta\t"),
    (common("a\0b"), r"CN=a\00b"),
    (common("Ünal 主 🎈"), "CN=Ünal 主 🎈"),
    (common("a/b@c:d*e?f'g&h!"), "CN=a/b@c:d*e?f'g&h!"),
    (common("\u00a0a\u202e"), "CN=\u00a0a\u202e"),
    (common("ann", Type.BMPString), r"CN=\00a\00n\00n"),
    (common("ann", Type.T61String), "CN=ann"),
    (common("ann", Type.IA5String), "CN=ann"),
    (common("ann", Type.UniversalString), "CN=#1c0c000000610000006e0000006e"),
    (common("12", Type.NumericString), "CN=#12023132"),
    (common("ann", Type.VisibleString), "CN=#1a03616e6e"),
    (Name([RelativeDistinguishedName([NameAttribute(CN, "ann"), NameAttribute(OU, "dev")])]), "CN=ann+OU=dev"),
    (Name([RelativeDistinguishedName([NameAttribute(NameOID.TITLE, "Dr"), NameAttribute(CN, "ann")])]),
     "2.5.4.12=#0c024472+CN=ann"),
    (Name([one(ORG, "x" * 300)]), f"O={'x' * 300}"),
    (Name([one(NameOID.TITLE, "x" * 300)]), f"2.5.4.12=#0c82012c{'78' * 300}"),
    (Name([one(OU, str(each)) for each in range(60)]), ",".join(f"OU={each}" for each in reversed(range(60)))),
]  # fmt: skip


def certificate(subject: Name) -> bytes:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(Name([])).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(AT).not_valid_after(AT)
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


def test_names_of_very_many_blanks_and_long_oids_take_no_longer_than_others() -> None:
    blanks, escaped_blanks = " " * 100_000, "\\ " * 100_000  # the square of their number would take a minute
    assert escaped(f"{blanks}a{blanks}b{blanks}") == f"{escaped_blanks}a{blanks}b{escaped_blanks}"
    with pytest.raises(ValueError, match="5000 bytes"):
        _dotted(b"\xff" * 4999 + b"\x01")


@pytest.mark.parametrize(("subject", "name"), SUBJECTS)
def test_a_subject_is_written_in_the_form_of_rfc_2253(subject: Name, name: str) -> None:
    assert distinguished_name(certificate(subject)) == name


@pytest.mark.needs("java")
def test_java_writes_the_same_names() -> None:
    with running_jvm() as jvm:
        principal = jvm.javax.security.auth.x500.X500Principal
        assert [principal(subject.public_bytes()).getName() for subject, _ in SUBJECTS] == [
            name for _, name in SUBJECTS
        ]


@pytest.mark.parametrize("size", [0, 1, 2, 5, 30, 60, 100])
def test_a_certificate_that_is_cut_off_has_no_name(size: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        distinguished_name(certificate(SUBJECTS[2][0])[:size])


OLD = [
    ("CN=ann,emailAddress=ann@a.example", SUBJECTS[6][1]),
    ("serialNumber=4711", "2.5.4.5=#130434373131"),
    ("title=Dr+CN=ann", "2.5.4.12=#0c024472+CN=ann"),
    ("givenName=Ann,surname=Doe", "2.5.4.42=#0c03416e6e,2.5.4.4=#0c03446f65"),
    ("postalCode=53111,O=acme", "2.5.4.17=#0c053533313131,O=acme"),
    ("2.999.1=x", "2.999.1=#0c0178"),
    (r"title=Dr\, \#1", "2.5.4.12=#0c0644722c202331"),
    (r"title=\#1", "2.5.4.12=#0c022331"),
    (f"title={'x' * 200}", f"2.5.4.12=#0c81c8{'78' * 200}"),
    (f"title={'x' * 300}", SUBJECTS[-2][1]),
    ("CN=a=b", r"CN=a\=b"),
    ("CN=a#b,O=c", r"CN=a\#b,O=c"),
    (r"CN=\  a", r"CN=\ \ a"),
    ("CN=a\0b", r"CN=a\00b"),
]


@pytest.mark.parametrize(("old", "new"), OLD)
def test_the_spelling_of_earlier_releases_is_known(old: str, new: str) -> None:
    assert written_as_java_does(old) == new
    assert written_as_java_does(new) is None


@pytest.mark.parametrize(
    "name",
    ["alice", "*", "ANONYMOUS", "a=b", "CN=ann,O=acme", "CN", "=x", "CN=a,", 'CN="a"', *(each for _, each in SUBJECTS)],
)
def test_other_names_are_no_old_spelling(name: str) -> None:
    assert written_as_java_does(name) is None


def test_a_broker_says_at_its_start_which_acls_match_no_certificate_any_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    pattern = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    entries = [
        AclEntry(principal=f"User:{each}", host="*", operation=AclOperation.READ, permission_type=permission)
        for each in ("CN=ann,emailAddress=ann@a.example", "CN=ben,O=acme", "carl")
        for permission in AclPermissionType
    ]
    authorizer = AclAuthorizer(super_users=frozenset({Principal("User", "CN=x#y"), Principal("User", "CN=z")}))
    warn_of_old_names(authorizer, {pattern: tuple(entries)})
    acls, super_users = sorted(record.getMessage() for record in caplog.records)
    assert acls.startswith("ACLs are for User:CN=ann,emailAddress=ann@a.example, as earlier releases")
    new = f"'User:{SUBJECTS[6][1]}'"
    assert f"odradek acls add {new} …" in acls
    assert "odradek acls remove --principal User:CN=ann,emailAddress=ann@a.example" in acls
    assert super_users.startswith(r"super.users has User:CN=x#y, as earlier")
    assert r"User:CN=x\#y" in super_users


def test_a_broker_says_at_its_start_which_quotas_are_of_no_user_any_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    users = ("CN=ann,emailAddress=ann@a.example", "CN=ben,O=acme", "carl", DEFAULT, None)
    warn_of_old_quotas([QuotaEntity(user=user, client_id=client) for user in users for client in ("c", None)])
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("Quotas are for CN=ann,emailAddress=ann@a.example, as earlier releases")
    assert f"odradek quotas set --user '{SUBJECTS[6][1]}' …" in line
    assert "odradek quotas remove --user CN=ann,emailAddress=ann@a.example" in line


# ---- Exposure of listeners -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1"])
def test_the_machine_itself_is_no_exposure(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.com", "localhost.example", "128.0.0.1"]
)
def test_everything_else_is(host: str) -> None:
    assert not is_loopback(host)


def test_operations_are_bits_by_their_numbers() -> None:
    assert TOPIC_OPERATIONS == 0b1101_1111_1000
    assert CLUSTER_OPERATIONS == 0b1_1111_1010_0000
    assert GROUP_OPERATIONS == 0b1101_0100_1000


# ---- Names as principals (KIP-371) -----------------------------------------------------------------------------------

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (RULES, "CN=Ann,OU=ServiceUsers,O=Org,C=DE", "ann"),
        (RULES, "CN=Ann,OU=Dev,O=acme,L=Bonn,ST=NW,C=DE", "ann@dev"),
        (RULES, "cn=ann,ou=dev,dc=acme,dc=com", "ANN@DEV"),
        (RULES, "cN=ann,OU=Dev,O=acme inc", "ANN"),
        (RULES, "OU=Dev,O=acme inc,C=DE", "OU=Dev,O=acme inc,C=DE"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Doe\, Ann,OU=X", r"Doe\, Ann"),
        ("RULE:CN=(a),.*/$1/", "CN=b,O=c", None),
        ("RULE:CN=(.*)/$1/", "O=c,CN=b", None),  # the pattern has to match the whole name
        ("", "CN=a", None),
        (", ,DEFAULT, ,", "CN=a", "CN=a"),
        ("  RULE:CN=(.*)/$1/ ,  DEFAULT  ", "CN=a", "a"),
        (r"RULE:CN=(.*)\/(.*)/$2\/\$1/", "CN=a/b", "b/$1"),
        ("RULE:CN=, DEFAULT, /DEFAULT/,DEFAULT", "CN=, DEFAULT, ", "DEFAULT"),
        ("RULE:CN=(.)(.)/$12$3$0/", "CN=ab", "a2$3CN=ab"),
        ("RULE:CN=(a)?b/<$1>/", "CN=b", "<>"),
    ],
)
def test_the_first_matching_rule_gives_the_principals_name(rules: str, name: str, mapped: str | None) -> None:
    assert principal_mapping(rules)(name) == mapped


@pytest.mark.parametrize(
    "rules",
    [
        *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/U", "DEFAULT DEFAULT", "RULE:"),
        *("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "rule:^CN=(.*?)$/$1/", "RULE:^CN=(.*?)$/$1/L/U"),
        *("RULE:^CN=(.*?)$/L", "RULE:^CN=(.*?)$/LU", "RULE:CN=(.*)/$1/X", "RULE:CN=(/x/", "RULE:(?!x)a/b/"),
        *("RULE:a/$/", "RULE:a/${name}/"),
    ],
)
def test_a_wrong_rule_is_refused_at_the_start(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.principal\.mapping\.rules"):
        principal_mapping(rules)
