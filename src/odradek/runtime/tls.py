"""TLS contexts from certificates and keys, which are files or PEM texts, by the standard library's `ssl`.

PKCS12 files (`.p12`, and `.jks` of newer Java releases) are read with the package `cryptography`.
"""

import logging
import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from odradek.model import ConfigurationError

_log = logging.getLogger("odradek.runtime")
_CHECK_S: Final = 1.0
_JKS: Final = b"\xfe\xed\xfe\xed"
_DER: Final = b"\x30"
_PEM: Final = b"-----BEGIN "
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CONVERSION: Final = (
    "keytool -importkeystore -srckeystore {0} -destkeystore store.p12 -deststoretype PKCS12, "
    "then openssl pkcs12 -in store.p12 -out store.pem, and set the location to store.pem"
)


class TlsSettings(Struct, frozen=True, kw_only=True):
    """The certificates that a side of TLS trusts, and its own key and certificate chain. Texts are PEM."""

    trusted_file: str | None = None
    trusted: str | None = None
    """Certificates to trust; without both of these the system's."""
    trusted_password: str | None = None
    own_file: str | None = None
    own_chain: str | None = None
    own_key: str | None = None
    own_password: str | None = None
    key_password: str | None = None
    versions: Sequence[str] = ("TLSv1.2", "TLSv1.3")
    keys: str = "ssl"
    """The beginning of the keys of the files, for errors."""

    def __repr__(self) -> str:
        return f"TlsSettings(files={self.files}, versions={self.versions})"

    @property
    def files(self) -> list[str]:
        """The files that a context is made of."""
        return [each for each in (self.trusted_file, self.own_file) if each is not None]


def client_context(settings: TlsSettings, *, check_name: bool) -> ssl.SSLContext:
    """Return a client's context. Raises `ConfigurationError` if a certificate or key cannot be read."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = check_name
    if settings.trusted_file is None and settings.trusted is None:
        context.load_default_certs()
    return context


def server_context(settings: TlsSettings, *, client_auth: str) -> ssl.SSLContext:
    """Return a server's context; `client_auth` is none, requested or required.

    Raises `ConfigurationError` without an own certificate, without certificates to trust if clients need one, or if a
    certificate or key cannot be read.
    """
    if settings.own_file is None and settings.own_chain is None:
        raise ConfigurationError(
            "a listener with TLS needs a certificate: set ssl.keystore.location to a PEM file with the private key and "
            "the certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain to PEM texts"
        )
    if client_auth != "none" and settings.trusted_file is None and settings.trusted is None:
        raise ConfigurationError(
            f"ssl.client.auth is {client_auth}, and no client's certificate would be accepted: set "
            "ssl.truststore.location to the certificates of the authorities that sign them"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    modes = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
    context.verify_mode = modes[client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class ServerTls:
    """A server's TLS, whose certificate files are read again when they have changed.

    Raises `ConfigurationError` at once if they cannot be read. Later, a file that cannot be read is logged, and the
    context stays.
    """

    def __init__(self, settings: TlsSettings, monotonic: Callable[[], float], *, client_auth: str) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._client_auth = client_auth
        self._stamps = self._file_stamps()
        self._context = server_context(settings, client_auth=client_auth)
        self._checked_s = monotonic()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. The files are looked at once a second."""
        now_s = self._monotonic()
        if now_s - self._checked_s >= _CHECK_S:
            self._checked_s = now_s
            stamps = self._file_stamps()
            if stamps != self._stamps:
                self._reload(stamps)
        return self._context

    def _reload(self, stamps: list[tuple[int, int] | None]) -> None:
        files = ", ".join(self._settings.files)
        try:
            self._context = server_context(self._settings, client_auth=self._client_auth)
        except (ConfigurationError, OSError) as error:
            _log.warning("New connections still get the old certificate, as the new one cannot be used: %s", error)
        else:
            _log.info("New connections get the new certificate of %s", files)
        self._stamps = stamps

    def _file_stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(each) for each in self._settings.files]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = [_VERSIONS[each] for each in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.trusted_file is not None:
        trusted = _pem(settings.trusted_file, f"{settings.keys}.truststore", settings.trusted_password)
        _trust(context, trusted, settings.trusted_file)
    if settings.trusted is not None:
        _trust(context, settings.trusted, "ssl.truststore.certificates")
    if settings.own_file is not None:
        password = settings.own_password
        pem = _pem(settings.own_file, f"{settings.keys}.keystore", password)
        _present(context, pem, settings.key_password or password, settings.own_file)
    elif settings.own_chain is not None or settings.own_key is not None:
        if settings.own_chain is None or settings.own_key is None:
            has, lacks = ("certificate.chain", "key") if settings.own_key is None else ("key", "certificate.chain")
            raise ConfigurationError(f"ssl.keystore.{has} is set and ssl.keystore.{lacks} is not: set both")
        pem = f"{settings.own_key}\n{settings.own_chain}\n"
        _present(context, pem, settings.key_password, "ssl.keystore.key and ssl.keystore.certificate.chain")
    return context


def _trust(context: ssl.SSLContext, pem: str, where: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"{where} has no valid certificates: {_reason(error)}") from None


def _present(context: ssl.SSLContext, pem: str, password: str | None, where: str) -> None:
    """Load a private key and its certificate chain, by a file that exists for a moment: `ssl` reads only files."""
    import tempfile  # 5 ms of each start, for a broker or client with keys as text

    descriptor, path = tempfile.mkstemp(prefix="odradek-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(pem)

        def ask() -> str:
            if password is None:
                raise ConfigurationError(f"the private key of {where} has a password: set ssl.key.password")
            return password

        context.load_cert_chain(path, password=ask)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"{where} is not a private key and its certificate: {_reason(error)}; it needs both, and the right password"
        ) from None
    finally:
        Path(path).unlink()


def _pem(path: str, keys: str, password: str | None) -> str:
    """Return the content of a PEM or PKCS12 file as PEM text."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{keys}.location: can't read {path}: {error.strerror}") from None
    if content[:4] == _JKS:
        raise ConfigurationError(f"{keys}.location: {path} is a JKS store. Convert it: {_CONVERSION.format(path)}")
    if content[:1] == _DER:
        return _pem_of_pkcs12(content, path, keys, password)
    if _PEM not in content:
        raise ConfigurationError(f"{keys}.location: {path} is neither PEM nor PKCS12")
    return content.decode("utf-8", errors="replace")


def _pem_of_pkcs12(content: bytes, path: str, keys: str, password: str | None) -> str:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ConfigurationError(
            f"{keys}.location: {path} is a PKCS12 store: pip install 'odradek[security]', or convert it with "
            f"openssl pkcs12 -in {path} -out store.pem"
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigurationError(f"{keys}.location: {path} can't be opened with {keys}.password: {error}") from None
    certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    parts = [each.public_bytes(Encoding.PEM) for each in certificates]
    if store.key is not None:
        parts.insert(0, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return b"".join(parts).decode("ascii")


def _reason(error: Exception) -> str:
    """Return OpenSSL's reason without its codes."""
    return getattr(error, "reason", None) or str(error)
