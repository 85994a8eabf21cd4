"""For whom a process writes while it answers somebody, for interfaces (`runtime.log.acting`)."""

from antiphon.runtime.log.acting import OWN, Acting

__all__ = ["OWN", "Acting"]
