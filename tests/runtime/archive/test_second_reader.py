"""Archives as somebody else reads them, who knows the published formats and nothing of ours."""

import asyncio
import random
import shutil

import pytest

from antiphon.core.archive import checkpoint, tiles
from antiphon.core.proof import merkle
from tests import archive_verifier
from tests.archive_verifier import verify
from tests.runtime.archive.archived_meshes import an_archived_mesh, files_of


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An archive with a full tile, and its checkpoint from before that."""
    folder = tmp_path_factory.mktemp("archive")

    async def make() -> tuple:
        async with an_archived_mesh(folder) as archived:
            await archived.work(1)
            await archived.archive()
            older = (folder / "checkpoint").read_bytes()
            await archived.litter(260)
            await archived.archive()
            return older, archived.mesh.owner

    return folder, *asyncio.run(make())


def test_it_verifies_checkpoint_tiles_entries_and_consistency(archive):
    folder, older, _ = archive
    size, _ = verify(folder, (folder / "vkey").read_text(), older)
    assert size > 256


def test_it_refuses_every_flipped_byte(archive, tmp_path):
    folder, older, _ = archive
    vkey, chance = (folder / "vkey").read_text(), random.Random(2)
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    size, _ = verify(folder, vkey)
    needed = ("checkpoint", "tile/0/000", "tile/entries/000", "tile/1/000.p/1")
    partial = (tiles.last_tile(0, size).path, tiles.last_tile(tiles.ENTRIES, size).path)
    for path in (*needed, *partial):
        good = files_of(folder)[path]
        for _ in range(6):
            bent = bytearray(good)
            bent[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
            (bad / path).write_bytes(bent)
            with pytest.raises(Exception):  # noqa: B017 - whatever it trips over
                verify(bad, vkey, older)
        (bad / path).write_bytes(good)
    verify(bad, vkey, older)


def test_it_refuses_an_older_checkpoint_of_another_history(archive):
    """Signed by the same key: a coordinator that tells two stories."""
    folder, older, owner = archive
    said, _ = checkpoint.read(older)
    forged = checkpoint.Checkpoint(said.mesh, said.size, bytes(32))
    signed = checkpoint.signed(forged, owner.did, owner.sign_checkpoint(forged))
    with pytest.raises(archive_verifier.Wrong, match="another history"):
        verify(folder, (folder / "vkey").read_text(), signed)


@pytest.mark.parametrize("old, new", [(1, 2), (3, 7), (6, 8), (8, 8), (64, 300), (257, 300)])
def test_consistency_proofs_are_those_of_the_rfc(old, new):
    leaves = [merkle.leaf_hash(b"%d" % at) for at in range(new)]

    def full(level: int, place: int) -> bytes:
        return tiles.root_of_full(leaves[place << level : (place + 1) << level])

    assert merkle.consistency(old, new, full) == archive_verifier.proof(old, leaves)
    assert merkle.root_of(new, full) == archive_verifier.root(leaves)
