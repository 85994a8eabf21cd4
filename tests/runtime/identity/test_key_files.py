"""Making a key file: whole or not at all, whoever else looks and whenever the process dies."""

import os

import pytest

from antiphon.errors import Held
from antiphon.runtime.identity import key_files
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory


class PowerCut(BaseException):
    """The process is gone."""


def test_nobody_sees_a_key_file_before_it_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "keys" / "worker-1.key"
    seen = []
    sync = os.fsync

    def looked(handle):
        seen.append(path.exists())
        sync(handle)

    monkeypatch.setattr(os, "fsync", looked)
    key_files.create(path, b"s" * 32)
    assert seen == [False, True], "first its bytes are synced, then its name"
    assert key_files.load(path).did == key_files.SeedKeyring(b"s" * 32).did
    assert [one.name for one in path.parent.iterdir()] == ["worker-1.key"]


def test_a_death_in_the_middle_of_making_a_key_leaves_its_name_usable(tmp_path, monkeypatch):
    home = StateDirectory(tmp_path)

    def cut(_handle):
        raise PowerCut

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", cut)
        with pytest.raises(PowerCut):
            home.key("worker-1", SystemEntropy())
    held = home.key("worker-1", SystemEntropy())
    assert held.name == "worker-1"
    held.release()


def test_a_key_is_never_written_over(tmp_path):
    path = tmp_path / "worker-1.key"
    key_files.create(path, b"a" * 32)
    with pytest.raises(Held):
        key_files.create(path, b"b" * 32)
    assert key_files.load(path).did == key_files.SeedKeyring(b"a" * 32).did
    assert list(tmp_path.iterdir()) == [path]
