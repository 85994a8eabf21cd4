"""The glossary is what the code says: its words are names, and no name says them differently."""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from tests.source_tree import facts

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "antiphon"
WORDS = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)

NAMED = {
    "op": "core.record.op:Op",
    "record": "core.opened_record:OpenedRecord",
    "verdict": "core.record.verdict:Verdict.OK",
    "reducer": "core.reducer:judge",
    "family": "core.family:Family",
    "branch": "core.record.branches:Branch",
    "lane": "core.family:Lane",
    "read-set": "core.read_set:fault",
    "control": "core.authority.control:Control",
    "rule": "core.authority.rules:Rules",
    "scope": "core.authority.scope:Scope",
    "delegation": "core.ucan:Delegation",
    "HLC": "core.clock.hlc:Hlc",
    "manifest": "core.manifest:Manifest",
    "job": "core.families.jobs.state:Job",
    "priority": "core.families.jobs.priority:Priority",
    "seal": "core.families.seals.ops:MeshSeal",
    "bundle": "core.bundle:Bundle",
    "selection": "core.policy.selection",
    "session": "runtime.log.session:Session",
    "intent": "runtime.log.writer:Intent",
    "draft": "runtime.log.author:Draft",
    "worker": "runtime.worker.worker:Worker",
    "tenure": "runtime.worker.tenure:Tenure",
    "full node": "runtime.node.full_node:FullNode",
    "replica": "runtime.replica.replica:Replica",
    "gate": "runtime.gate.admission:Gate",
    "ticket": "runtime.gate.tickets:Ticket",
    "state directory": "runtime.identity.state_directory:StateDirectory",
    "roll call": "runtime.presence.roll_call",
    "hook": "runtime.executors.hooks:Hook",
    "engine": "ports:Engine",
    "submit": "sdk.mesh:Mesh.submit",
    "task": "sdk.task:Task",
}
"""Main words, and where the code has them."""

REPLACED = {
    "Reason": "verdict",
    "Entry": "record",
    "open_entry": "record",
    "Peer": "session",
    "peer": "session",
    "urgency": "priority",
    "CLASSES": "priority",
}
"""Names that meant something on the page by another word, and the word."""


def sources():
    return [path for path in sorted(SOURCE.rglob("*.py")) if "sandbox" not in path.parts]


def test_every_word_has_one_row():
    assert [word for word, rows in Counter(WORDS).items() if rows > 1] == []


@pytest.mark.parametrize("word, where", NAMED.items())
def test_the_code_has_the_word(word, where):
    assert word in WORDS
    module, _, path = where.partition(":")
    found = import_module(f"antiphon.{module}")
    for name in filter(None, path.split(".")):
        found = getattr(found, name)


def test_no_name_says_a_main_word_differently():
    said = [
        f"{path.relative_to(SOURCE)}: {name}; the word is {REPLACED[name]}"
        for path in sources()
        for name in sorted(facts(path).names & REPLACED.keys())
    ]
    assert said == []


def test_a_kind_is_a_sort_of_work_and_nothing_else():
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sources()
        for line, annotation in facts(path).kinds
        if annotation.startswith(("type[", "Callable"))
    ]
    assert wrong == []
