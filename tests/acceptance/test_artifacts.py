"""`antiphon get` and `antiphon artifacts`: what jobs wrote, from the command line."""

import asyncio
import hashlib

import pytest

from antiphon import Mesh
from tests.acceptance.shell import Shell
from tests.runtime.by_hand import completed

pytestmark = pytest.mark.nats

KIND = "demo.files"
BIG = bytes(range(256)) * 40_000


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    directory = tmp_path_factory.mktemp("artifacts")
    (directory / "big").write_bytes(BIG)
    (directory / "notes").write_text("two words\n")
    typed = Shell(directory)
    with typed.dev("--name", "files"):
        yield typed


@pytest.fixture(scope="module")
def job(shell):
    async def make():
        async with Mesh.open(home=shell.home) as mesh:
            outputs = [
                await mesh.artifacts.keep(shell.directory / "notes", "notes.txt"),
                await mesh.artifacts.keep(shell.directory / "big", "deep/big.bin"),
            ]
            return (
                await completed(mesh.connection.session, mesh.connection.session, KIND, *outputs)
            ).id

    return asyncio.run(make())


def test_all_outputs_go_into_a_directory(shell, job):
    answer = shell.run("get", job[:10], "-o", "into")
    assert answer.code == 0, answer.err
    assert (shell.directory / "into" / "notes.txt").read_text() == "two words\n"
    assert (shell.directory / "into" / "deep" / "big.bin").read_bytes() == BIG
    assert "10.2 MB" in answer.out


def test_one_output_goes_to_a_file_or_to_standard_output(shell, job):
    assert shell.run("get", job, "notes.txt", "-o", "mine").code == 0
    assert (shell.directory / "mine").read_text() == "two words\n"
    answer = shell.run("get", job, "notes.txt", "-o", "-")
    assert answer.out == "two words\n"
    told = shell.run("get", job, "deep/big.bin", "--json").json
    assert told["files"][0]["sha256"] == hashlib.sha256(BIG).hexdigest()
    assert (shell.directory / "deep" / "big.bin").read_bytes() == BIG


def test_what_is_not_there_is_explained(shell, job):
    answer = shell.run("get", job, "nothing")
    assert (answer.code, "'notes.txt', 'deep/big.bin'" in answer.err) == (5, True)
    answer = shell.run("get", job, "-o", "-")
    assert (answer.code, "which one?" in answer.err) == (2, True)


def test_artifacts_are_listed_with_their_places(shell, job):
    answer = shell.run("artifacts")
    assert "in its record" in answer.out
    assert "on the mesh" in answer.out
    (notes, big) = shell.run("artifacts", job, "--json").json["artifacts"]
    assert (notes["name"], notes["where"], notes["size"]) == ("notes.txt", "record", 10)
    assert (big["job"], big["kind"], big["where"]) == (job, KIND, "mesh")


def test_a_bundle_travels_with_its_files_and_notices_another_one(shell, job):
    shell.export(job, "-o", "bundle.json", "--artifacts", "files")
    answer = shell.run("verify", "bundle.json", "--artifacts", "files")
    assert (answer.code, "exactly what the job wrote" in answer.out) == (0, True)
    (shell.directory / "files" / "notes.txt").write_text("two swords\n")
    answer = shell.run("verify", "bundle.json", "--artifacts", "files")
    assert (answer.code, "is not the output of the job" in answer.err) == (5, True)


def test_an_evicted_output_is_listed_as_such_and_stays_on_record(shell, job):
    (_, big) = shell.run("artifacts", job, "--json").json["artifacts"]
    assert big["until_ms"] > 0
    answer = shell.run("artifacts", "--evict", job[:12])
    assert (answer.code, "deep/big.bin" in answer.out) == (0, True)
    assert "notes.txt" not in answer.out, "it lies in the record itself"
    (notes, big) = shell.run("artifacts", job, "--json").json["artifacts"]
    assert (notes["where"], big["where"], big["until_ms"]) == ("record", "evicted", None)
    assert "evicted the output" in shell.run("show", job).out
    answer = shell.run("artifacts", "--evict")
    assert (answer.code, "antiphon artifacts --evict JOB" in answer.err) == (2, True)
