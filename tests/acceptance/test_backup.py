"""`docs/do/backup.md`, typed as it stands there, on the machine that hosts a mesh; and mistakes."""

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.typed_page import ROOT, Reader


@pytest.mark.nats
def test_the_page_works_as_typed(tmp_path):
    with Reader(tmp_path) as person, person.shell("").init("--name", "shop"):
        (tmp_path / "passphrase").write_text("correct horse battery staple\n")
        person.follow((ROOT / "docs/do/backup.md").read_text())
        assert (tmp_path / "restored" / "mesh.json").is_file()
        shell = person.shell("")
        (segment, *_) = sorted((tmp_path / "copies/mesh/log").iterdir())
        segment.write_bytes(segment.read_bytes()[:-1])
        damaged = shell.run("backup", "--verify", "copies/mesh")
        assert damaged.code != 0
        assert "is damaged" in damaged.err
        inside = shell.run("backup", "copies/mesh", "--keys", "copies/mesh/keys")
        assert "must not be in the backup" in inside.err
        assert not (tmp_path / "copies/mesh/keys").exists()


def test_mistakes_say_what_to_type(tmp_path):
    shell = Shell(tmp_path)
    said = {
        "antiphon restore DIR --keys FILE": shell.run("restore", "copies"),
        "--listen 0.0.0.0:4222": shell.run("restore", "a", "--keys", "b", "--reach", "c"),
        "antiphon restore --accept": shell.run("restore", "copies", "--accept"),
        "antiphon backup DIR": shell.run("backup", "--verify", "copies"),
        "leave --keys out": shell.run("backup", "--verify", "copies", "--keys", "k"),
    }
    for hint, answer in said.items():
        assert answer.code != 0, hint
        assert hint in answer.err
