"""Receivers with certificates: verified for the name in the URL, at the address that was checked."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sutler.service.webhooks.sending import Attempt, Sender
from tests.adapters.server import Reply, ScriptedServer
from tests.service.webhooks.builders import LOOPBACK, a_message, is_signed

NAME = "receiver.example"
OPENSSL = shutil.which("openssl")


class TlsServer(ScriptedServer):
    """The scripted server behind TLS; `names` are those that clients asked for."""

    def __init__(self, certificate: Path) -> None:
        super().__init__([Reply(200)])
        self.names: list[str | None] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def port(self) -> int:
        return self._server.server_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate in one file, for the name and for 127.0.0.1."""
    if OPENSSL is None:
        pytest.skip("openssl is not on the PATH: no certificate can be made")
    folder = tmp_path_factory.mktemp("tls")
    both = folder / "both.pem"
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    both.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return both


@pytest.fixture
def server(certificate: Path) -> Iterator[TlsServer]:
    with TlsServer(certificate) as made:
        yield made


def sent(url: str, *, trusting: Path | None) -> Attempt:
    context = None if trusting is None else ssl.create_default_context(cafile=str(trusting))
    return Sender(lookup=lambda host, port: ["127.0.0.1"], tls=context)(a_message(url), allowed=LOOPBACK)


def test_a_trusted_receiver_gets_the_event_under_its_name(server: TlsServer, certificate: Path) -> None:
    attempt = sent(f"https://{NAME}:{server.port}/hook", trusting=certificate)
    assert (attempt.ok, attempt.error) == (True, None)
    assert server.names == [NAME]
    assert server.requests[0].headers["host"] == f"{NAME}:{server.port}"
    assert is_signed(server.requests[0])


def test_an_address_is_verified_too(server: TlsServer, certificate: Path) -> None:
    assert sent(f"https://127.0.0.1:{server.port}/hook", trusting=certificate).ok
    assert len(server.requests) == 1


def test_a_certificate_for_another_name_is_refused(server: TlsServer, certificate: Path) -> None:
    attempt = sent(f"https://other.example:{server.port}/hook", trusting=certificate)
    assert (attempt.ok, server.requests) == (False, [])
    assert (attempt.error or "").startswith("the certificate is not trusted: Hostname mismatch")


def test_a_self_made_certificate_is_not_trusted_by_itself(server: TlsServer) -> None:
    attempt = sent(f"https://{NAME}:{server.port}/hook", trusting=None)
    assert (attempt.ok, server.requests) == (False, [])
    assert (attempt.error or "").startswith("the certificate is not trusted: self")


def test_a_receiver_without_tls_is_not_spoken_to_in_the_clear() -> None:
    with ScriptedServer([Reply(200)]) as plain:
        attempt = sent(plain.base_url.replace("http", "https"), trusting=None)
    assert (attempt.ok, plain.requests) == (False, [])
    assert (attempt.error or "").startswith("no TLS connection")
