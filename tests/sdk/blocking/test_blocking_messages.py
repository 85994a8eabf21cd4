"""Messages without `await`: sent, read, settled, asked, from plain code."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from antiphon import Mesh, Rejected, Unavailable
from tests.patience import PATIENCE_S


@pytest.fixture
def mesh():
    with Mesh.open(engine="memory", agent="one").blocking() as mesh:
        yield mesh


def other(mesh, name):
    return f"{mesh.did}/{name}"


def test_a_message_is_sent_read_and_acknowledged(mesh):
    assert mesh.messages.address == other(mesh, "one")
    sent = mesh.messages.send(other(mesh, "two"), {"n": 1}, kind="progress.build", thread="t")
    assert [one.thread for one in mesh.messages.threads(agent="two")] == ["t"]
    with mesh.messages.inbox(agent="two") as inbox:
        message = next(inbox)
    assert (message.id, message.payload, message.kind) == (sent, {"n": 1}, "progress.build")
    assert (message.sender, message.attempt) == (mesh.messages.address, 1)
    assert message.payload_as(dict[str, int]) == {"n": 1}
    message.extend("1m")
    message.ack()
    assert list(mesh.messages.inbox(agent="two", wait=0)) == []


def test_a_for_loop_ends_when_no_message_came_for_so_long(mesh):
    for number in range(3):
        mesh.messages.send(other(mesh, "two"), number, thread="t")
    seen = []
    for message in mesh.messages.inbox(agent="two", wait=0):
        seen.append(message.payload)
        message.ack()
    assert seen == [0, 1, 2]


def test_what_is_not_handled_comes_again_and_in_the_end_is_a_dead_letter(mesh):
    mesh.messages.send(mesh.messages.address, "no")
    attempts = []
    for message in mesh.messages.inbox(wait="1s"):
        attempts.append(message.attempt)
        message.nack(0, error="not today")
    assert attempts == list(range(1, 17))
    [dead] = mesh.messages.dead()
    assert (dead.reason, dead.error, dead.payload) == ("attempts", "not today", "no")


def test_a_question_is_answered_by_another_thread(mesh):
    def answer():
        with mesh.messages.inbox(agent="oracle") as inbox:
            question = next(inbox)
            question.reply(question.payload + 1)
            question.ack()

    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(answer)
        assert mesh.messages.ask(other(mesh, "oracle"), 41, within=PATIENCE_S).payload == 42
        answering.result(PATIENCE_S)
    with pytest.raises(Unavailable, match="did not answer"):
        mesh.messages.ask(other(mesh, "nobody"), 1, within=0.05)


def test_a_broadcast_says_what_became_of_each(mesh):
    sent = mesh.messages.broadcast([other(mesh, "a"), "nobody", other(mesh, "b")], "hello")
    assert [bool(one.id) for one in sent] == [True, False, True]
    assert isinstance(sent[1].error, Rejected)


def test_a_message_can_be_acknowledged_by_its_id(mesh):
    sent = mesh.messages.send(mesh.messages.address, 1)
    mesh.messages.ack(sent)
    assert list(mesh.messages.inbox(wait=0)) == []


def test_what_was_not_taken_is_given_back(mesh):
    for number in range(2):
        mesh.messages.send(mesh.messages.address, number)
    with mesh.messages.inbox(prefetch=2) as inbox:
        next(inbox).ack()
    with mesh.messages.inbox() as inbox:
        message = next(inbox)
        assert message.attempt == 2, "it was read ahead, and handed out again at once"
        assert "ReceivedMessage(" in repr(message)
        message.ack()
