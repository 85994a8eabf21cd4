"""Documents of members: over a gate, within the spaces that they were given."""

import asyncio

import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import AntiphonError, EngineDenied, Rejected
from tests.patience import PATIENCE_S
from tests.runtime.gate.test_member_artifacts import hosted

pytestmark = [pytest.mark.nats, pytest.mark.req("S13")]
LARGE = "x" * 60_000


async def test_members_share_what_they_may_and_nothing_else(tmp_path):
    writes = Terms(can=("memory",), kinds=("notes.*",), alias="writer")
    reads = Terms(can=("read-memory",), kinds=("notes.team",), alias="reader")
    works = Terms(can=("claim",), kinds=("notes.*",), alias="worker")
    async with hosted(tmp_path, writer=writes, reader=reads, worker=works) as meshes:
        owner, writer, reader, worker = meshes
        notes = writer.memory["notes.team"]
        async with reader.memory["notes.team"].watch("plan") as changes:
            first = (await notes.put("plan", "first")).document
            async with asyncio.timeout(PATIENCE_S):
                assert (await anext(changes)).revision == first.revision
        seen = await reader.memory["notes.team"].get("plan")
        assert (seen.value, seen.author) == ("first", writer.did)
        assert (await owner.memory["notes.team"].put("plan", LARGE, base=seen)).outcome == "written"
        assert (await notes.put("plan", "late", base=first)).outcome == "skipped"
        assert (await reader.memory["notes.team"].get("plan")).value == LARGE
        assert (await notes.put("plan", LARGE * 2, base=first, strategy="defer")).sibling
        (sibling,) = await owner.memory["notes.team"].conflicts("plan")
        assert sibling.value == LARGE * 2
        assert (await notes.keys()) == ["plan"]

        with pytest.raises((EngineDenied, Rejected)):
            await reader.memory["notes.team"].put("plan", "no", base=seen, strategy="local")
        with pytest.raises((EngineDenied, Rejected)):
            await writer.memory["secret"].put("plan", "no")
        for mesh, space in ((reader, "notes.other"), (worker, "notes.team")):
            with pytest.raises(AntiphonError):
                await mesh.memory[space].get("plan")


async def test_a_blob_of_others_is_not_had_by_putting_its_digest(tmp_path):
    from antiphon.core.families.memory.ops import Stored
    from antiphon.core.families.memory.writing import Wanted
    from antiphon.runtime.memory.documents import Documents

    writes = Terms(can=("memory",), kinds=("notes.*",), alias="writer")
    async with hosted(tmp_path, writer=writes) as (owner, writer):
        await owner.memory["secret"].put("book", LARGE)
        stored = (await Documents(owner.connection.session).read("secret", "book")).value
        assert isinstance(stored, Stored)
        mine = Wanted(space="notes.mine", key="k", agent="main", value=stored, base=0)
        assert (await Documents(writer.connection.session).put(mine)).outcome == "written"
        with pytest.raises(AntiphonError):
            await writer.memory["notes.mine"].get("k")
