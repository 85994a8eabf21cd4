"""Shared memory, as typed: `antiphon memory`."""

import json

import pytest

from tests.acceptance.shell import Shell

pytestmark = [pytest.mark.nats, pytest.mark.req("S13")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        yield typed


def test_two_people_write_one_document_and_one_of_them_decides(shell):
    def memory(*words, **how):
        return shell.run("memory", *words, **how)

    assert memory("get", "notes.team", "plan").code == 1
    first = memory("put", "notes.team", "plan", '{"steps": 4}', "--json").json["document"]
    base = ["--base", str(first["revision"])]
    wrote = memory("put", "notes.team", "plan", '{"steps": 5}', *base)
    assert wrote.code == 0, wrote.err
    assert "✓ wrote plan: revision " in wrote.out
    late = memory("put", "notes.team", "plan", '{"steps": 6}', *base)
    assert late.code == 6
    assert "skipped: the document is at revision" in late.err
    kept = memory("put", "notes.team", "plan", '{"steps": 6}', *base, "--strategy", "defer")
    assert "kept beside plan" in kept.out
    listed = memory("conflicts", "notes.team", "--json").json["conflicts"]
    assert [one["value"] for one in listed] == [{"steps": 6}]
    assert json.loads(memory("get", "notes.team", "plan").out) == {"steps": 5}
    assert memory("resolve", "notes.team", "plan", '{"steps": 7}').code == 0
    assert "no conflicts" in memory("conflicts", "notes.team").err
    assert memory("ls", "notes.team").out.split() == ["plan"]
    assert memory("delete", "notes.team", "plan").code == 0
    assert "no documents" in memory("ls", "notes.team").err
