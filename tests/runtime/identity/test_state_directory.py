"""Keys and the state directory: private, exclusive, and clear about what is wrong."""

import stat

import pytest

from antiphon.errors import Corrupt, Held, Misconfigured
from antiphon.runtime.identity import key_files
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory

ENTROPY = SystemEntropy()


def test_a_key_file_is_readable_by_its_owner_only(tmp_path):
    home = StateDirectory(tmp_path / "state")
    with_key = home.key("owner", ENTROPY)
    path = tmp_path / "state" / "keys" / "owner.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with_key.release()
    path.chmod(0o640)
    with pytest.raises(Misconfigured) as refused:
        home.key("owner", ENTROPY)
    assert "chmod 600" in refused.value.hint


def test_one_process_at_a_time_uses_a_key_and_the_next_gets_another(tmp_path):
    home = StateDirectory(tmp_path)
    first = home.free_key("worker", ENTROPY)
    with pytest.raises(Held):
        home.key(first.name, ENTROPY)
    second = home.free_key("worker", ENTROPY)
    assert second.keyring.did != first.keyring.did
    first.release()
    again = home.free_key("worker", ENTROPY)
    assert again.keyring.did == first.keyring.did


def test_a_seed_shows_in_no_text(tmp_path):
    held = StateDirectory(tmp_path).key("owner", ENTROPY)
    seed = (tmp_path / "keys" / "owner.key").read_text().strip()
    assert seed not in repr(held.keyring)
    access = Access(user="mesh", password="open sesame")
    assert "sesame" not in repr(access)
    assert "sesame" not in str(access)


@pytest.mark.parametrize("content", ["", "zz", "00" * 31])
def test_a_broken_key_file_is_named(tmp_path, content):
    path = tmp_path / "broken.key"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(Corrupt, match="not a key file"):
        key_files.take(path)
    key_files.lock_file(path.with_suffix(".lock"), "still locked").release()


def test_a_home_is_found_from_below_and_its_absence_says_what_to_do(tmp_path, monkeypatch):
    deep = tmp_path / "project" / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with pytest.raises(Misconfigured) as nothing:
        StateDirectory.find(None)
    assert "antiphon dev" in nothing.value.hint
    home = StateDirectory(tmp_path / "project" / ".antiphon")
    described = MeshFile(mesh="a" * 16, name="x", engine="nats://127.0.0.1:1")
    home.write(described, Access(user="u", password="p"))
    assert StateDirectory.find(None).mesh() == described
    access = tmp_path / "project" / ".antiphon" / "access.json"
    assert stat.S_IMODE(access.stat().st_mode) == 0o600
