"""Keys and forks: what a process locked is neither kept nor given back by its children."""

import os

import pytest

from antiphon.errors import Held
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from tests.forked import in_child

pytestmark = pytest.mark.processes
ENTROPY = SystemEntropy()


def test_a_child_takes_another_key_of_the_role(tmp_path):
    home = StateDirectory(tmp_path)
    ours = home.free_key("client", ENTROPY)
    assert ours.name == "client-1"
    assert in_child(lambda: home.free_key("client", ENTROPY).name) == "client-2"
    ours.release()


def test_a_child_cannot_release_its_parents_key(tmp_path):
    home = StateDirectory(tmp_path)
    ours = home.key("client-1", ENTROPY)
    assert in_child(ours.release) == "None"
    with pytest.raises(Held):
        home.key("client-1", ENTROPY)
    ours.release()


def test_a_released_key_is_free_although_a_child_lives_on(tmp_path):
    home = StateDirectory(tmp_path)
    ours, replica = home.key("client-1", ENTROPY), home.lock_replica()
    has_looked, look = os.pipe()
    is_alive, live = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(live, b".")
        os.read(has_looked, 1)
        os._exit(0)
    try:
        os.read(is_alive, 1)
        ours.release()
        replica.release()
        home.key("client-1", ENTROPY).release()
        home.lock_replica().release()
    finally:
        os.write(look, b".")
        os.waitpid(pid, 0)
        for handle in (has_looked, look, is_alive, live):
            os.close(handle)
