"""Steps of a graph: what stands for a value until a job has made it.

For a type checker a step is the value that it will become. At run time it is a `Step`, and using it
as a value is an error that says what to do instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from antiphon.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.call_options import Scheduling
    from antiphon.sdk.handle import JobHandle


class Plan:
    """What a graph knows about one of its steps."""

    def __init__(
        self,
        graph: object,
        number: int,
        kind: str,
        scheduling: Scheduling,
        signature: CallSignature | None = None,
    ) -> None:
        """`number` counts from 1, in the order in which steps were added."""
        self.graph = graph
        self.name = f"step {number} ({kind})"
        self.kind = kind
        self.scheduling = scheduling
        self.signature = signature
        self.id = ""
        """Its job's id, known while the graph is submitted and afterwards."""
        self.handle: JobHandle[Any] | None = None

    def job_key(self) -> tuple[str, str]:
        """Its job; `Misconfigured` while there is none."""
        if not self.id:
            raise Misconfigured(
                f"{self.name} is not submitted: its graph is, when its block ends",
                hint="use it inside the same graph, or after its block",
            )
        return self.kind, self.id


class Step:
    """Stands for what a job will return. Give it to other steps of the same graph."""

    __slots__ = ("__plan__",)

    def __init__(self, plan: Plan) -> None:
        """Made by `Graph.add` and `Graph.map`."""
        self.__plan__ = plan

    def __repr__(self) -> str:
        return f"<{self.__plan__.name}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself asks for these, to find out what it has
            raise AttributeError(name)
        raise _no_value(self, f"has no attribute {name!r} yet")

    def job_key(self) -> tuple[str, str]:
        """Its job's kind and id: for `after=[step]`."""
        return self.__plan__.job_key()

    __hash__ = object.__hash__


def _no_value(step: Step, what: str) -> TypeError:
    return TypeError(
        f"{step!r} {what}: it stands for a result that a job has yet to make. Give the step itself"
        " to another task of the graph, or take its result after the block: await g.result(step)"
    )


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Step, *_: object) -> NoReturn:
        raise _no_value(self, f"cannot be used as a value ({name})")

    return refuse


_AS_A_VALUE = (
    *("__bool__", "__len__", "__iter__", "__getitem__", "__contains__", "__call__", "__await__"),
    *("__str__", "__format__", "__bytes__", "__int__", "__float__", "__index__", "__fspath__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__abs__"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__mod__", "__rmod__"),
    *("__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__pow__", "__rpow__"),
    *("__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__matmul__"),
    *("__enter__", "__aenter__", "__aiter__", "__reduce_ex__", "__copy__", "__deepcopy__"),
)
for _name in _AS_A_VALUE:
    setattr(Step, _name, _refusal(_name))


class CommandStep:
    """A command of a graph. Its result is files: `build.output("app.tar")`."""

    def __init__(self, plan: Plan) -> None:
        """Made by `Graph.command`."""
        self.__plan__ = plan

    def __repr__(self) -> str:
        return f"<{self.__plan__.name}>"

    def output(self, name: str) -> StepOutput:
        """One of the files that it keeps, for the `inputs` of another command."""
        return StepOutput(self, name)

    def job_key(self) -> tuple[str, str]:
        """Its job's kind and id: for `after=[step]`."""
        return self.__plan__.job_key()


class StepOutput:
    """A file that a command of a graph will have written."""

    def __init__(self, step: CommandStep, name: str) -> None:
        """Made by `CommandStep.output`."""
        self.step = step
        self.name = name


def plan_of(one: object) -> Plan | None:
    """What a graph knows about a step; None for anything else."""
    return one.__plan__ if isinstance(one, (Step, CommandStep)) else None


__all__ = ["CommandStep", "Plan", "Step", "StepOutput", "plan_of"]
