"""What `antiphon restore --accept` and `antiphon address` tell a person, and a program."""

import json
from pathlib import Path

import pytest

from antiphon.interfaces.cli.commands.backup import restore as command
from antiphon.interfaces.cli.commands.mesh import address
from antiphon.interfaces.cli.screen.command import tell
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.passphrase import ask_passphrase
from antiphon.sdk.hosting import addresses, backups
from antiphon.sdk.hosting.backups import Accepted, LostRecord


def lost(seq: int) -> LostRecord:
    return LostRecord(
        seq=seq,
        commit_ms=1_700_000_000_000,
        op="job.schedule",
        author="did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH",
        kind="shop.order",
        name=f"{seq:064x}",
        verdict="ok",
    )


async def accepted(monkeypatch, capsys, found, *, as_json):
    async def given(_home):
        return found

    monkeypatch.setattr(backups, "accept_restored", given)
    code = tell(await command._accept(None), as_json=as_json)
    return code, capsys.readouterr().out


async def test_what_is_lost_is_listed_with_who_wrote_it(monkeypatch, capsys):
    many = tuple(lost(seq) for seq in range(8, 33))
    found = Accepted(agreed=7, lost=many, kept=Path("replica-lost-32.db"))
    code, said = await accepted(monkeypatch, capsys, found, as_json=False)
    assert code == 0
    assert "lost: 25 records that this machine saw after record 7" in said
    assert said.count("job.schedule shop.order") == command.SHOWN
    assert "and 5 more: --json lists them all" in said
    assert "replica-lost-32.db" in said
    _, facts = await accepted(monkeypatch, capsys, found, as_json=True)
    assert len(json.loads(facts)["lost"]) == len(many)


async def test_a_machine_that_saw_no_more_is_told_that_nothing_is_lost(monkeypatch, capsys):
    found = Accepted(agreed=7, lost=(), kept=None)
    _, said = await accepted(monkeypatch, capsys, found, as_json=False)
    assert "nothing is lost" in said


@pytest.mark.parametrize(
    "announced, words", [(True, "members are told"), (False, "this machine uses it")]
)
def test_a_new_address_is_confirmed(monkeypatch, capsys, announced, words):
    async def changed(text, *, home):
        assert home is None
        return announced, f"nats://{text}"

    monkeypatch.setattr(addresses, "change_address", changed)
    assert address.address(home=None, as_json=False, address="host:4222") == 0
    said = capsys.readouterr().out
    assert words in said
    assert "nats://host:4222" in said


def test_a_passphrase_is_read_from_a_file_without_its_line_end(tmp_path):
    (tmp_path / "secret").write_text("correct horse\n")
    assert ask_passphrase(tmp_path / "secret", twice=True) == "correct horse"
    (tmp_path / "secret").write_text("\n")
    with pytest.raises(WrongUsage):
        ask_passphrase(tmp_path / "secret", twice=True)
