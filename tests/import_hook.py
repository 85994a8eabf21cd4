"""An import hook that changes modules as they are loaded; nothing is written to disk."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Loading(MetaPathFinder):
    """Finds some modules as everybody else would, and changes the loader of each."""

    def __init__(self, changes: Mapping[str, Callable[[Any], None]]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of one of these modules, whose loader belongs to nobody else."""
        change = self._changes.get(fullname)
        if change is None:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((each for each in specs if each is not None), None)
        if spec is None or spec.loader is None:
            return None
        change(spec.loader)
        return spec


def install(changes: Mapping[str, Callable[[Any], None]]) -> None:
    """From here on this process imports the changed modules."""
    sys.meta_path.insert(0, Loading(changes))
