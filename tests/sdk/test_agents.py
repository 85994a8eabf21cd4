"""Names of agents, and the parts that `Mesh` is made of."""

import pytest
from msgspec import ValidationError, convert

from antiphon import Mesh
from antiphon.core.record.ids import agent_address, check_agent, name_of_key, split_address
from antiphon.core.record.op import AgentName
from antiphon.errors import AntiphonError, Malformed

DID = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"
UNUSABLE = ["", "-a", "a b", "a.b", "a/b", "a*", "main\n", "ä", "a" * 65]


@pytest.mark.parametrize("name", ["main", "reviewer-2", "A_b", "7", "a" * 64])
def test_a_name_is_one_token(name):
    assert check_agent(name) == convert(name, AgentName) == name


@pytest.mark.parametrize("name", UNUSABLE)
def test_another_name_is_refused_by_people_and_in_records_alike(name):
    with pytest.raises(Malformed, match="name of an agent"):
        check_agent(name)
    with pytest.raises(ValidationError):
        convert(name, AgentName)


def test_an_address_is_a_node_and_an_agent():
    assert split_address(agent_address(DID, "reviewer")) == (DID, "reviewer")
    assert split_address(DID) == (DID, "main")
    for bad in ("reviewer", "did:key:zNo/main", f"{DID}/", f"{DID}/a/b"):
        with pytest.raises(Malformed):
            split_address(bad)


def test_a_key_s_name_is_a_token_of_one_length():
    names = {name_of_key(key) for key in ("", "file:src/lib.rs", "file:src/lib.rs ", "ä" * 999)}
    assert {len(name) for name in names} == {24}
    assert len(names) == 4


async def test_the_agent_comes_from_the_call_or_the_environment(monkeypatch):
    assert Mesh.open(engine="memory").agent == "main"
    monkeypatch.setenv("ANTIPHON_AGENT", "from-env")
    assert Mesh.open(engine="memory").agent == "from-env"
    chosen = Mesh.open(engine="memory", agent="reviewer")
    assert chosen.agent == chosen.blocking().agent == "reviewer"
    async with chosen:
        assert chosen.messages.address == f"{chosen.did}/reviewer"


def test_an_unusable_agent_is_refused_before_anything_opens(monkeypatch):
    with pytest.raises(Malformed):
        Mesh.open(engine="memory", agent="no good")
    monkeypatch.setenv("ANTIPHON_AGENT", "no good")
    with pytest.raises(AntiphonError, match="agent"):
        Mesh.open(engine="memory")
