"""Finding your tasks: imports a module and takes the one `Mesh` in it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.errors import AntiphonError, Misconfigured

if TYPE_CHECKING:
    from types import ModuleType

    from antiphon.sdk.mesh import Mesh


EXAMPLE: Final = "example"


def find_mesh(target: str) -> Mesh:
    """The mesh in `package.module`, `path/to/module.py`, or either with `:name` after it.

    `example` means the example tasks.
    """
    from antiphon.sdk.mesh import Mesh

    if target == EXAMPLE:
        from antiphon.interfaces.cli.shared.demo_tasks import add_tasks

        ours = Mesh.open()
        add_tasks(ours)
        return _usable(ours, target)
    where, _, name = target.partition(":")
    module = _import(where)
    if name:
        mesh = _mesh_of(getattr(module, name, None))
        if mesh is None:
            raise Misconfigured(
                f"{name!r} in {where} is not a Mesh",
                hint=f"leave out the name: {where} alone finds the one mesh in it",
            )
        return _usable(mesh, where)
    found = {mesh: key for key, value in vars(module).items() if (mesh := _mesh_of(value))}
    if not found:
        raise Misconfigured(
            f"{where} has no Mesh at its top level",
            hint='write: mesh = Mesh.open(), then @mesh.task("example.add") over a function',
        )
    if len(found) > 1:
        raise Misconfigured(
            f"{where} has several meshes: {', '.join(found.values())}",
            hint=f"name one: {where}:{next(iter(found.values()))}",
        )
    (only,) = found
    return _usable(only, where)


def _mesh_of(value: object) -> Mesh | None:
    """The mesh that a variable holds; a blocking one is the mesh that it was made of."""
    from antiphon.sdk.blocking.blocking_mesh import BlockingMesh
    from antiphon.sdk.mesh import Mesh

    if isinstance(value, BlockingMesh):
        return value.mesh
    return value if isinstance(value, Mesh) else None


def _usable(mesh: Mesh, where: str) -> Mesh:
    if mesh.engine == "memory":
        raise Misconfigured(
            f"the mesh in {where} is in memory only: no other process can submit jobs to it",
            hint="write Mesh.open() without engine='memory', and unset ANTIPHON_ENGINE",
        )
    if not mesh.kinds:
        raise Misconfigured(
            f"the mesh in {where} has no task", hint='put @mesh.task("example.add") over a function'
        )
    return mesh


def _import(where: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        if where.endswith(".py") or "/" in where:
            return _import_file(Path(where))
        return importlib.import_module(where)
    except AntiphonError:
        raise
    except ModuleNotFoundError as missing:
        if missing.name and (where == missing.name or where.startswith(missing.name + ".")):
            raise Misconfigured(
                f"there is no module {where!r} here",
                hint="give a dotted name as in 'import', or a path that ends in .py",
            ) from missing
        raise _failed(where, missing) from missing
    except SystemExit as ended:
        raise Misconfigured(
            f"importing {where} ended the program (exit code {ended.code})",
            hint="move what the script does under: if __name__ == '__main__':",
        ) from ended
    except Exception as error:
        raise _failed(where, error) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Misconfigured(
            f"there is no file {path}",
            hint="give a path from here, or a dotted name as in 'import'",
        )
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Misconfigured(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _failed(where: str, error: Exception) -> Misconfigured:
    """What went wrong inside the user's module, and on which line."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        what, place = error.msg, f", at {error.filename}:{error.lineno}"
    else:
        what, place = str(error), f", at {frames[-1].filename}:{frames[-1].lineno}"
    return Misconfigured(
        f"importing {where} failed: {type(error).__name__}: {what}{place}",
        hint="ANTIPHON_LOG_LEVEL=debug shows the whole traceback",
    )
