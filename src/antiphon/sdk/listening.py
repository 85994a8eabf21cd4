"""A job's words while it runs, for whoever waits for it."""

from antiphon.runtime.live import Words, listening

__all__ = ["Words", "listening"]
