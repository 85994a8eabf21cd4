"""`docs/do/backup.md`, typed as it stands there, on the machine that hosts a mesh; and mistakes."""

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.typed_page import ROOT, Reader
from tests.engines.objects.stores import BUCKET, s3_server


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
        short = shell.run("backup", "new", "--keys", "k", typed="short")
        assert (short.code, "choose a longer one" in short.err) == (3, True)
        assert not (tmp_path / "new").exists(), "nothing is written without its keys"


@pytest.mark.nats
def test_a_backup_in_a_bucket_is_checked_and_restored(tmp_path):
    place = f"s3://{BUCKET}/nightly/shop"
    with s3_server() as server:
        shell = Shell(tmp_path, **server.env)
        (tmp_path / "passphrase").write_text("correct horse battery staple\n")
        secret = ("--keys", "keys", "--passphrase-file", "passphrase")
        with shell.init("--name", "shop"):
            first = shell.run("backup", place, *secret, "--json").json
            again = shell.run("backup", place)
        assert f"{place}: " in again.out
        assert shell.run("backup", "--verify", place, "--json").json["records"] >= first["records"]
        restored = shell.run("restore", place, *secret, "--home", "restored", "--json")
        assert restored.json["upto"] >= first["upto"]
        assert (tmp_path / "restored" / "mesh.json").is_file()
        elsewhere = shell.run("backup", "--verify", f"s3://{BUCKET}/elsewhere")
        assert f"there is no backup in s3://{BUCKET}/elsewhere" in elsewhere.err
        wrong = shell.run("backup", "--verify", "s3://no bucket")
        assert "a bucket is s3://name or s3://name/prefix" in wrong.err


def test_mistakes_say_what_to_type(tmp_path):
    shell = Shell(tmp_path)
    said = {
        "antiphon restore DIR --keys FILE": shell.run("restore", "copies"),
        "--listen 0.0.0.0:4222": shell.run("restore", "a", "--keys", "b", "--reach", "c"),
        "antiphon restore --accept": shell.run("restore", "copies", "--accept"),
        "antiphon backup PLACE": shell.run("backup", "--verify", "copies"),
        "leave --keys out": shell.run("backup", "--verify", "copies", "--keys", "k"),
    }
    for hint, answer in said.items():
        assert answer.code != 0, hint
        assert hint in answer.err
