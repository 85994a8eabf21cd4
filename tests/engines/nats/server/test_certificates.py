"""Our own certificate authority, as Go's TLS on one side and Python's on the other see it."""

import datetime as dt
import ssl
import stat
import sys

import pytest

from antiphon.engines.nats.server import certificates
from antiphon.engines.nats.server.certificate_authority import Authority
from antiphon.engines.nats.server.certificates import client_context, open_authority, server_files
from antiphon.errors import Corrupt, Misconfigured

HOSTS = ["mesh.example", "127.0.0.1", "::1", "2001:db8::1"]


def handshake(authority: Authority, host: str, hosts=HOSTS, tmp_path=None, **extra) -> None:
    """In memory: a server with a new certificate, a client that looks for `host`."""
    certificate, key = authority.issue(hosts, **extra)
    (tmp_path / "c.pem").write_text(certificate)
    (tmp_path / "k.pem").write_text(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
    strict = client_context(authority.certificate_pem)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = strict.wrap_bio(to_client, to_server, server_hostname=host)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() in {"TLSv1.2", "TLSv1.3"}


@pytest.mark.parametrize("host", HOSTS)
def test_a_certificate_holds_for_each_of_its_hosts_to_a_strict_verifier(host, tmp_path):
    handshake(Authority.new(), host, tmp_path=tmp_path)


@pytest.mark.parametrize("host", ["other.example", "127.0.0.2", "sub.mesh.example"])
def test_and_for_no_other(host, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(Authority.new(), host, tmp_path=tmp_path)


def test_a_certificate_that_has_run_out_is_refused(tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(Authority.new(), "127.0.0.1", tmp_path=tmp_path, life=dt.timedelta(seconds=-60))


def test_a_client_trusts_one_authority_and_asks_for_modern_tls():
    context = client_context(Authority.new().certificate_pem)
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1
    for text in ("", "no certificate", "-----BEGIN CERTIFICATE-----\nAA\n"):
        with pytest.raises(Misconfigured):
            client_context(text)


def test_keys_are_for_their_owner_and_never_shown(tmp_path):
    files = server_files(tmp_path, ["localhost"])
    for name, mode in (
        ("ca-key.pem", 0o600),
        ("server-key.pem", 0o600),
        ("ca.pem", 0o644),
        ("server.pem", 0o644),
    ):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    assert "PRIVATE" not in (repr(open_authority(tmp_path)) + repr(files))
    assert "PRIVATE" not in files.certificate.read_text() + files.authority.read_text()


def test_a_server_keeps_its_certificate_until_half_of_its_life_or_other_hosts(tmp_path):
    files = server_files(tmp_path, ["localhost", "127.0.0.1"])
    authority = files.authority.read_text()
    first = files.certificate.read_text()
    assert server_files(tmp_path, ["127.0.0.1", "localhost"]) == files
    assert files.certificate.read_text() == first
    server_files(tmp_path, ["localhost"])
    second = files.certificate.read_text()
    assert second != first
    old, _ = open_authority(tmp_path).issue(["localhost"], life=dt.timedelta(minutes=59))
    files.certificate.write_text(old)  # began an hour ago: past its half
    server_files(tmp_path, ["localhost"])
    assert files.certificate.read_text() not in {first, second, old}
    assert files.authority.read_text() == authority


@pytest.mark.parametrize("damage", ["of another authority", "unreadable", "without its key"])
def test_a_certificate_that_would_not_do_is_made_anew(damage, tmp_path):
    files = server_files(tmp_path, ["localhost"])
    before = files.certificate.read_text()
    if damage == "of another authority":
        files.certificate.write_text(Authority.new().issue(["localhost"])[0])
    elif damage == "unreadable":
        files.certificate.write_text("nonsense")
    else:
        files.key.unlink()
    server_files(tmp_path, ["localhost"])
    assert open_authority(tmp_path).is_fresh(files.certificate, ["localhost"])
    assert files.certificate.read_text() != before
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)  # they belong together


def test_a_lost_or_damaged_authority_is_told_apart(tmp_path):
    with pytest.raises(Misconfigured):
        Authority.load(tmp_path)
    Authority.new().store(tmp_path)
    (tmp_path / "ca-key.pem").write_text("nonsense")
    with pytest.raises(Corrupt):
        Authority.load(tmp_path)


@pytest.mark.parametrize("hosts", [[], [""], ["two words"], ["a"] * 65, ["a..b"]])
def test_nonsense_gets_no_certificate(hosts):
    with pytest.raises(Misconfigured):
        Authority.new().issue(hosts)


def test_without_the_package_one_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "antiphon.engines.nats.server.certificate_authority")
    with pytest.raises(Misconfigured) as caught:
        certificates.open_authority(tmp_path)
    assert "antiphon[server]" in caught.value.hint
