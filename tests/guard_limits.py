"""Other limits of a room, for tests that use them up."""

from msgspec.structs import replace

from antiphon.guard import Guard


def limited(monkeypatch, room: str, **limits) -> None:
    """Whatever is admitted to this room has these limits."""
    admit = Guard.admit

    def admitted(self, declared, who, size=0):
        if declared.room == room:
            declared = replace(declared, **limits)
        return admit(self, declared, who, size)

    monkeypatch.setattr(Guard, "admit", admitted)
