"""SSH keys as nodes of a mesh, and the signatures that they make for Git."""

import base64
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from antiphon.core.record.ids import did_of
from antiphon.errors import Malformed
from antiphon.sdk.git.ssh_signature import did_of_ssh_key, signer_of, ssh_key_of
from tests.examples import examples
from tests.interfaces.git.signed_commits import make_key

KEY = SigningKey(bytes(range(32)))
DID = did_of(bytes(KEY.verify_key))
MESSAGE = b"tree 1234\n\na job\n"


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def signature(
    *,
    namespace: bytes = b"git",
    algorithm: bytes = b"sha512",
    type_: bytes = b"ssh-ed25519",
    message: bytes = MESSAGE,
    more: bytes = b"",
    longer: bytes = b"",
    reserved: bytes = b"",
) -> str:
    """A signature by the format's description, with whatever is wrong with it."""
    import hashlib

    name = algorithm.decode() if algorithm in (b"sha256", b"sha512") else "sha512"
    digest = hashlib.new(name, message).digest()
    signed = b"SSHSIG" + b"".join(map(string, (namespace, reserved, algorithm, digest)))
    raw = KEY.sign(signed).signature + longer
    key = string(type_) + string(bytes(KEY.verify_key))
    parts = (key, namespace, reserved, algorithm, string(type_) + string(raw))
    blob = b"SSHSIG" + (1).to_bytes(4, "big") + b"".join(map(string, parts)) + more
    return armored(base64.b64encode(blob).decode())


def armored(text: str) -> str:
    lines = [text[at : at + 70] for at in range(0, len(text), 70)]
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----"])


@pytest.mark.parametrize("algorithm", [b"sha256", b"sha512"])
def test_a_good_signature_names_the_key_as_a_node(algorithm):
    assert signer_of(signature(algorithm=algorithm), MESSAGE) == DID


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"namespace": b"file"}, "made for 'file', not for git"),
        ({"algorithm": b"md5"}, "another hash"),
        ({"reserved": b"x"}, "another hash"),
        ({"type_": b"ssh-rsa"}, "only ssh-ed25519 keys"),
        ({"more": b"x"}, "more bytes"),
        ({"longer": b"x"}, "length of a signature"),
        ({"message": b"another"}, "does not fit"),
    ],
)
def test_anything_else_is_refused_in_words(wrong, words):
    with pytest.raises(Malformed, match=words):
        signer_of(signature(**wrong), MESSAGE)


@settings(max_examples=examples(100))
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_bit_of_a_signature_can_change(at, bit):
    lines = signature().splitlines()
    blob = bytearray(base64.b64decode("".join(lines[1:-1])))
    blob[at % len(blob)] ^= 1 << bit
    with pytest.raises(Malformed):
        signer_of(armored(base64.b64encode(bytes(blob)).decode()), MESSAGE)


@settings(max_examples=examples(100))
@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data):
    for text in (armored(base64.b64encode(data).decode()), data.decode(errors="replace")):
        with pytest.raises(Malformed):
            signer_of(text, MESSAGE)


def test_a_key_reads_the_same_in_both_forms():
    line = f"{ssh_key_of(DID)} somebody@somewhere"
    assert did_of_ssh_key(line) == DID
    assert did_of_ssh_key(f'somebody namespaces="git" {ssh_key_of(DID)}') == DID
    for wrong in ("", "ssh-ed25519", "ssh-rsa AAAAB3NzaC1yc2E=", "ssh-ed25519 AAAA"):
        with pytest.raises(Malformed):
            did_of_ssh_key(wrong)


@pytest.mark.processes
def test_openssh_signs_what_is_read_here(tmp_path):
    key = make_key(tmp_path)
    (tmp_path / "message").write_bytes(MESSAGE)
    words = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", key, tmp_path / "message"]
    subprocess.run(words, check=True, capture_output=True)
    text = (tmp_path / "message.sig").read_text()
    assert signer_of(text, MESSAGE) == did_of_ssh_key(key.with_suffix(".pub").read_text())
