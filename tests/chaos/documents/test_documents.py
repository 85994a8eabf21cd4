"""`chaos documents`, as small as it still shows something; and its audit sees what is wrong."""

import json

import pytest
from msgspec.structs import replace

from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.runtime.memory.documents import Documents
from chaos.documents.audit import audit
from chaos.documents.command import Run, execute
from chaos.documents.process import SPACE, Deed
from tests.runtime.meshes import CALM, a_mesh


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.req("S13")
async def test_agents_that_are_killed_lose_no_update_and_no_conflict(capsys):
    code = await execute(Run(writes=16, kills=1, seed=3))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["lost"], said["unlisted"], said["unresolved"]) == (0, 0, 0)
    assert said["writes"] >= 4 * 15


@pytest.mark.virtual_time
async def test_the_audit_finds_what_is_missing():
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection(mesh.owner)).session
        documents, revisions, deeds = Documents(session), [0], []
        for number, strategy in enumerate(("remote", "remote", "defer", "defer"), start=1):
            base = revisions[-1] if strategy == "remote" else revisions[1]
            value = Inline(text=json.dumps({"a": number}, separators=(",", ":")))
            wanted = Wanted(
                space=SPACE, key="defer", agent="a", value=value, base=base, strategy=strategy
            )
            settled = await documents.put(wanted)
            revisions.append(settled.document.revision)
            outcome = (settled.outcome, settled.document.revision, settled.op_id)
            deeds.append(Deed("defer", number, *outcome))
        history = (await session.read(document_key(SPACE, "defer"))).history
        sound = audit("defer", history, deeds)
        assert (sound.lost, sound.unlisted, len(sound.open)) == ([], [], 2)
        assert audit("defer", history[1:], deeds).lost, "a write is gone"
        assert audit("defer", history[:-1], deeds).unlisted, "a deferred value is gone"
        rejected = [replace(one, verdict=type(one.verdict)("base")) for one in history[:2]]
        assert audit("defer", [*rejected, *history[2:]], deeds).lost
        assert audit("merge", [history[1], history[0]], []).lost, "a counter went back"
