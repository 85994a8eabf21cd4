"""One guard for everything that answers requests, over whatever protocol they come.

What answers declares its `Limits`; the `Guard` of a process counts, for all of it together, who is
being answered, with how many bytes, and how much processor time that took. `shares` has the law by
which parties share it, `metered` measures.
"""

from antiphon.guard.guard import Guard, Visit, answered, in_thread, spend
from antiphon.guard.limits import Limits, Who
from antiphon.guard.metered import TOO_MUCH

__all__ = ["TOO_MUCH", "Guard", "Limits", "Visit", "Who", "answered", "in_thread", "spend"]
