"""`docs/do/backup.md`, typed as it stands there, on the machine that hosts a mesh; and mistakes."""

import shlex
import time

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


def joined(host, machine, alias, *terms):
    """A member on a machine of its own; its id."""
    ticket = host.run("invite", *terms, "--alias", alias).out.strip()
    return machine.run("join", ticket, "--json").json["node"]


@pytest.mark.nats
def test_a_restore_says_who_has_permissions_again_and_how_to_revoke_them(tmp_path):
    for name in ("host", "ada", "bob"):
        (tmp_path / name).mkdir()
    host = Shell(tmp_path / "host")
    (host.directory / "passphrase").write_text("correct horse battery staple\n")
    secret = ("--keys", "keys", "--passphrase-file", "passphrase")
    with host.init("--name", "shop"):
        ada = joined(host, Shell(tmp_path / "ada"), "ada", "--can", "claim", "--kind", "shop.*")
        bob = joined(
            host, Shell(tmp_path / "bob"), "bob", "--can", "schedule", "--kind", "shop.order",
            "--until", "2d",
        )  # fmt: skip
        assert host.run("backup", "copies", *secret).code == 0
        assert host.run("revoke", "ada").code == 0
        assert "ada" not in host.run("who").out
    restored = host.run("restore", "copies", *secret, "--home", "restored")
    assert restored.code == 0, restored.err
    assert "Revocations after" in restored.out
    assert f"ada {ada[-8:]}" in restored.out
    assert "claim shop.*  until " in restored.out
    (typed,) = [one.strip() for one in restored.out.splitlines() if "revoke ada" in one]
    assert typed.startswith("antiphon revoke ada --home ")
    assert f"bob {bob[-8:]}" in restored.out
    assert "schedule shop.order  until " in restored.out
    told = host.run("restore", "copies", *secret, "--home", "again", "--json").json
    assert {one["alias"]: one["node"] for one in told["live"]} == {"ada": ada, "bob": bob}
    (of_ada,) = [one for one in told["live"] if one["alias"] == "ada"]
    assert of_ada["may"] == "claim shop.*"
    assert of_ada["until_s"] > time.time()
    assert of_ada["revoke"].startswith("antiphon revoke ada --home ")
    assert told["undone_since_ms"] == told["last_ms"]
    with host.start("up", "--home", "restored", "--json") as server:
        server.line("ready")
        assert host.run(*shlex.split(typed)[1:]).code == 0
        who = host.run("who", "--home", "restored")
        assert server.stop() == 0
    assert "bob" in who.out
    assert "ada" not in who.out


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
