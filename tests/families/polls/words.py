"""Polls, in words."""

from tests.families.polls.ops import PollClose, PollOpen, PollVote


def sentence(op) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    match op:
        case PollOpen(body=body):
            return f"asked {body.question!r}"
        case PollVote(body=body):
            return f"voted {'yes' if body.choice else 'no'}"
        case PollClose():
            return "closed the poll"
