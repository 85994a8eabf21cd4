"""Where a mesh that exists listens from now on, and what it is called."""

import msgspec
import pytest

from antiphon.assembly.hosted_mesh import Listen
from antiphon.assembly.moving import MOST_NAMES, further_listen
from antiphon.errors import Misconfigured
from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory

ANYWHERE = Listen(host="0.0.0.0", port=4222, names=("farm.example", "box"))


def hosting(path, listen=None, ca="a certificate") -> StateDirectory:
    """A directory that hosts a mesh; without `listen`, a development mesh."""
    home = StateDirectory(path)
    home.make()
    home.write_mesh(MeshFile(mesh="m", name="shop", engine="nats://127.0.0.1:7000", ca=ca))
    (home.server).mkdir()
    if listen is not None:
        (home.server / "listen.json").write_bytes(msgspec.json.encode(listen))
    return home


def test_new_names_come_first_and_old_ones_stay(tmp_path):
    home = hosting(tmp_path, Listen(host="127.0.0.1", port=7000, names=("127.0.0.1",)))
    found = further_listen(home, ANYWHERE, ["farm.example"])
    assert found == Listen(host="0.0.0.0", port=4222, names=("farm.example", "box", "127.0.0.1"))


def test_port_0_is_the_port_that_it_has(tmp_path):
    home = hosting(tmp_path, Listen(host="127.0.0.1", port=7000, names=("127.0.0.1",)))
    assert further_listen(home, msgspec.structs.replace(ANYWHERE, port=0), []).port == 7000


def test_a_name_alone_is_added_where_others_can_connect(tmp_path):
    home = hosting(tmp_path, ANYWHERE)
    found = further_listen(home, None, ["new.example"])
    assert found.names == ("new.example", "farm.example", "box")
    assert (found.host, found.port) == ("0.0.0.0", 4222)


def test_where_nobody_else_can_connect_a_name_alone_would_help_nobody(tmp_path):
    home = hosting(tmp_path, Listen(host="127.0.0.1", port=7000, names=("127.0.0.1",)))
    with pytest.raises(Misconfigured, match="this machine alone") as told:
        further_listen(home, None, ["new.example"])
    assert "antiphon up --listen" in told.value.hint


def test_names_have_a_bound(tmp_path):
    names = tuple(f"n{number}" for number in range(MOST_NAMES))
    home = hosting(tmp_path, Listen(host="0.0.0.0", port=4222, names=names))
    assert further_listen(home, None, ["new"]).names == ("new", *names[:-1])


def test_a_development_mesh_has_its_port_and_a_mesh_of_somebody_elses_server_none(tmp_path):
    development = hosting(tmp_path / "dev", ca="")
    with pytest.raises(Misconfigured, match="does not host a mesh"):
        further_listen(development, ANYWHERE, [])
    (development.server / "credentials.json").write_text("{}")
    found = further_listen(development, msgspec.structs.replace(ANYWHERE, port=0), [])
    assert (found.port, found.names[-1]) == (7000, "127.0.0.1")
