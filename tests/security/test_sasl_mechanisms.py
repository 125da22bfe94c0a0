"""The exchanges of the SASL mechanisms, between the two sides and with the published examples (X2)."""

import json
from base64 import b64decode

import pytest

from odradek.model import AuthenticationError
from odradek.security.sasl.exchange import SaslClient, SaslServer
from odradek.security.sasl.oauthbearer import BearerToken, OauthBearerClient, OauthBearerServer
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram import (
    ScramClient,
    ScramCredential,
    ScramServer,
    decode_credential,
    encode_credential,
    scram_credential,
)

CREDENTIAL = scram_credential("SCRAM-SHA-256", "pencil", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4096)


def exchanged(client: SaslClient, server: SaslServer) -> list[bytes]:
    """Play an exchange to its end and return its tokens."""
    tokens: list[bytes] = []
    challenge = b""
    while (token := client.step(challenge)) is not None:
        challenge = server.step(token)
        tokens += [token, challenge]
    return tokens


def imagined(user: str) -> tuple[bytes, int]:
    return user.encode(), 8192


def scram_server(credential: ScramCredential | None = CREDENTIAL, nonce: str = "server") -> ScramServer:
    known = {"user": credential}
    return ScramServer("SCRAM-SHA-256", known.get, imagined, nonce=nonce)


def test_scram_sends_the_messages_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    server = scram_server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchanged(client, server) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]
    assert server.user == "user"


def test_a_token_of_many_fields_is_refused_before_it_is_parsed() -> None:
    names = ",".join(f"{number}=" for number in range(100_000))
    with pytest.raises(AuthenticationError, match="invalid token"):
        scram_server().step(f"n,,n=user,r=x,{names}".encode())


def test_a_credential_does_not_show_its_keys() -> None:
    assert repr(CREDENTIAL) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords_of_any_characters_are_authenticated(mechanism: str) -> None:
    user, password = "a,b=c=2C€", 'p"\\;=,€'
    credential = scram_credential(mechanism, password, salt=b"salt", iterations=4096)
    server = ScramServer(mechanism, {user: credential}.get, imagined, nonce="s")
    exchanged(ScramClient(mechanism, user, password, nonce="c"), server)
    assert server.user == user
    plain = PlainServer({user: password})
    exchanged(PlainClient(user, password), plain)
    assert plain.user == user


@pytest.mark.parametrize("credential", [CREDENTIAL, None], ids=["wrong password", "unknown user"])
def test_a_wrong_password_and_an_unknown_user_give_the_same_error(credential: ScramCredential | None) -> None:
    client, server = ScramClient("SCRAM-SHA-256", "user", "wrong", nonce="c"), scram_server(credential)
    first = client.step(b"")
    assert first is not None
    proof = client.step(server.step(first))
    assert proof is not None
    with pytest.raises(AuthenticationError, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        server.step(proof)
    assert not server.user


def test_an_unknown_user_gets_the_imagined_salt_and_iterations() -> None:
    assert scram_server(None).step(b"n,,n=other,r=c") == b"r=cserver,s=b3RoZXI=,i=8192"


@pytest.mark.parametrize(
    "changed",
    [
        lambda proof: proof.replace(b"r=cserver", b"r=cother"),
        lambda proof: proof.replace(b"r=cserver", b"r=c"),
        lambda proof: proof.replace(b"c=biws", b"c=eSws"),
        lambda proof: proof[: proof.index(b",p=")],
        lambda proof: proof + b",r=cserver",
        lambda _: b"",
        lambda _: b"\xff",
    ],
)
def test_a_final_message_of_another_exchange_is_refused(changed) -> None:
    client, server = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="c"), scram_server()
    first = client.step(b"")
    assert first is not None
    proof = client.step(server.step(first))
    assert proof is not None
    with pytest.raises(AuthenticationError, match="invalid"):
        server.step(changed(proof))
    assert not server.user


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=,r=c",
        b"n,,n=user",
        b"y,,n=user,r=c",
        b"p=tls-unique,,n=user,r=c",
        b"n,,m=x,n=user,r=c",
    ],
)
def test_a_first_message_that_is_not_scram_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationError, match="invalid token"):
        scram_server().step(first)


def test_authorization_ids_of_others_and_delegation_tokens_are_refused() -> None:
    with pytest.raises(AuthenticationError, match="authorization id"):
        scram_server().step(b"n,a=admin,n=user,r=c")
    with pytest.raises(AuthenticationError, match="delegation tokens are not supported"):
        scram_server().step(b"n,,n=user,r=c,tokenauth=true")
    with pytest.raises(AuthenticationError):
        PlainServer({"user": "x", "admin": "y"}).step(b"admin\0user\0x")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "invalid token"),
        (b"r=c,s=c2FsdA==,i=4096", "invalid token"),
        (b"r=cs,s=c2FsdA==,i=1", "iterations"),
        (b"r=cs,s=c2FsdA==,i=99999999", "invalid token"),
        (b"r=cs,s=?,i=4096", "invalid token"),
        (b"e=other-error", "other-error"),
    ],
)
def test_a_client_refuses_a_server_that_cheats(answer: bytes, said: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="c")
    client.step(b"")
    with pytest.raises(AuthenticationError, match=said):
        client.step(answer)


def test_a_client_refuses_a_server_that_does_not_know_the_password() -> None:
    client, server = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="c"), scram_server()
    first = client.step(b"")
    assert first is not None
    client.step(server.step(first))
    with pytest.raises(AuthenticationError, match="failed to prove"):
        client.step(b"v=AAAA")


@pytest.mark.parametrize(
    "token", [b"", b"\0user", b"\0user\0wrong", b"\0other\0x", b"\0user\0x\0x", b"\0\0", b"\0user\0", b"\xff\0user\0x"]
)
def test_plain_refuses_all_but_the_right_password(token: bytes) -> None:
    server = PlainServer({"user": "x", "empty": ""})
    with pytest.raises(AuthenticationError):
        server.step(token)
    assert not server.user
    with pytest.raises(AuthenticationError):
        PlainServer({"empty": ""}).step(b"\0empty\0")


def test_a_bearer_token_is_the_users_until_it_expires() -> None:
    server = OauthBearerServer(lambda token: BearerToken(user=f"user of {token}", expires_ms=5))
    assert exchanged(OauthBearerClient("abc", {"logicalCluster": "lkc-1"}), server)[-1] == b""
    assert (server.user, server.expires_ms) == ("user of abc", 5)
    server = OauthBearerServer(lambda token: BearerToken(user=token, expires_ms=None))
    server.step(b"n,,\x01auth=Bearer   \x1fabc \x01\x01")
    assert server.user == "\x1fabc", "only blanks are around a token"


def test_an_invalid_bearer_token_is_refused_after_the_clients_acknowledgement() -> None:
    def check(token: str) -> BearerToken:
        raise AuthenticationError("expired")

    client, server = OauthBearerClient("abc"), OauthBearerServer(check)
    first = client.step(b"")
    assert first is not None
    answer = server.step(first)
    assert json.loads(answer) == {"status": "invalid_token"}
    acknowledgement = client.step(answer)
    assert acknowledgement == b"\x01"
    with pytest.raises(AuthenticationError, match="expired"):
        server.step(acknowledgement)
    for token in (b"", b"n,,", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer x", b"\xff"):
        with pytest.raises(AuthenticationError, match="invalid token"):
            OauthBearerServer(check).step(token)


def test_a_credential_has_kafkas_text() -> None:
    text = encode_credential(CREDENTIAL)
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert decode_credential(text) == CREDENTIAL
    assert decode_credential("salt=x") is None
    assert decode_credential(text.replace("iterations=4096", "iterations=many")) is None
