"""Names of a package that are imported on first use, so that importing the package is cheap."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def from_modules(package: str, where: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for a package: which module each of its names is in."""

    def find(name: str) -> object:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return find
