"""A graph of commands in a file: YAML or JSON in, a graph out (docs/do/graphs.md).

    kind: ci
    steps:
      build:
        command: [make]
        outputs: [app.tar]
      test:
        command: [./test.sh]
        inputs: {app.tar: {step: build}}

Steps may be written in any order. Everything is checked before anything is sent, and a mistake is
told with its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from antiphon.core.manifest import author
from antiphon.core.record.subjects import check_kind, is_kind
from antiphon.errors import AntiphonError, Malformed, Misconfigured
from antiphon.sdk.call_options import CallOptions, Scheduling
from antiphon.sdk.command_files import files_named
from antiphon.sdk.defaults import COMMAND_KIND, TIMEOUT_S
from antiphon.sdk.manifests.authored_manifest import place_of, read_document
from antiphon.sdk.manifests.manifest_errors import CLOSE, described, explain
from antiphon.sdk.manifests.yaml_errors import objection

if TYPE_CHECKING:
    from antiphon.sdk.graphs.graph import GraphPlan
    from antiphon.sdk.graphs.step import CommandStep
    from antiphon.sdk.manifests.strict_yaml import Document

MAX_STEPS: Final = 1_000
TOP: Final = ("kind", "steps")
MANIFEST: Final = ("command", "args", "env", "cwd", "outputs", "secrets", "network", "timeout")
OPTIONS: Final[dict[str, Any]] = {
    "priority": "high",
    "attempts": 3,
    "requires": ["gpu"],
    "concurrency": "gpu",
    "any_outcome": True,
    "lease": "1m",
}
"""How a step is scheduled, with an example of each."""
OURS: Final = ("kind", "needs", "inputs")
FIELDS: Final = (*MANIFEST, *OURS, *OPTIONS)
OF_STEP: Final = ("step", "output")

FieldPath = tuple[str | int, ...]


class FileStep(NamedTuple):
    """One step as it is in the file."""

    name: str
    kind: str
    content: Mapping[str, Any]
    """The fields of its manifest."""
    files: Mapping[str, Path | tuple[str, str]]
    """Inputs by name: a file, or a step and its output."""
    needs: tuple[str, ...]
    options: CallOptions

    @property
    def before(self) -> tuple[str, ...]:
        """The steps that it waits for, each once."""
        read = (one[0] for one in self.files.values() if isinstance(one, tuple))
        return tuple(dict.fromkeys((*self.needs, *read)))


def read_graph(path: Path) -> list[FileStep]:
    """The steps of a file, each after those that it waits for; `Malformed` says what is wrong."""
    try:
        steps = _Reader(read_document(path), path.parent).steps()
    except Malformed as problem:
        joint = ", " if problem.message.startswith("line ") else ": "
        message = f"{path}{joint}{problem.message}"
        raise Malformed(message, reason=problem.reason, hint=problem.hint) from problem
    missing = next((one for step in steps for one in step.files.values() if _is_missing(one)), None)
    if missing is not None:
        raise Misconfigured(
            f"there is no file {missing}", hint="paths begin at the directory of the graph's file"
        )
    return steps


def _shown(example: Any) -> str:
    """An example as YAML."""
    return json.dumps(example).replace('"', "")


def _is_missing(one: object) -> bool:
    return isinstance(one, Path) and not one.is_file()


def add_to(graph: GraphPlan, steps: list[FileStep]) -> dict[str, CommandStep]:
    """Add the steps of a file to a graph; the steps by name."""
    made: dict[str, CommandStep] = {}
    for step in steps:
        inputs: dict[str, object] = {
            name: one if isinstance(one, Path) else made[one[0]].output(one[1])
            for name, one in step.files.items()
        }
        options: CallOptions = {**step.options, "after": [made[name] for name in step.needs]}
        content = dict(step.content)
        words = [*content.pop("command"), *content.pop("args", ())]
        made[step.name] = graph.command(step.kind, words, inputs=inputs, options=options, **content)
    return made


class _Reader:
    """Reads one file; every refusal has the place of what is wrong."""

    def __init__(self, written: Document, folder: Path) -> None:
        self._written = written
        self._folder = folder

    def _refuse(self, path: FieldPath, sentence: str, hint: str, *, name: bool = False) -> NoReturn:
        place = place_of(self._written, path, at_name=name)
        raise objection(place, sentence, hint=hint, reason="graph")

    def steps(self) -> list[FileStep]:
        top = self._mapping((), self._written.value, TOP)
        if "steps" not in top:
            self._refuse((), "there are no 'steps'", "steps:\n  build:\n    command: [make]")
        kind = top.get("kind", COMMAND_KIND)
        self._kind(("kind",), kind)
        named = top["steps"]
        if not isinstance(named, dict) or not named:
            self._refuse(
                ("steps",),
                f"'steps' are steps by their names, not {described(named)}",
                "steps:\n  build:\n    command: [make]",
            )
        if len(named) > MAX_STEPS:
            self._refuse(
                ("steps",),
                f"a file has up to {MAX_STEPS:,} steps; these are {len(named):,}",
                "make larger graphs in Python: async with mesh.graph() as g",
            )
        steps = {name: self._step(name, fields, kind) for name, fields in named.items()}
        for step in steps.values():
            self._check_links(step, steps)
        return self._in_order(steps)

    def _step(self, name: str, given: Any, kind: str) -> FileStep:
        path: FieldPath = ("steps", name)
        fields = self._mapping(path, given, FIELDS)
        kind = fields.get("kind", kind)
        self._kind((*path, "kind"), kind)
        content: dict[str, Any] = {one: fields[one] for one in MANIFEST if one in fields}
        whole: dict[str, Any] = {"timeout": TIMEOUT_S, **content}
        try:
            author(whole)
        except Malformed as problem:
            wrong = explain(whole, problem)
            self._refuse((*path, *wrong.path), wrong.sentence, wrong.hint, name=wrong.at_name)
        options: dict[str, Any] = {one: fields[one] for one in OPTIONS if one in fields}
        for one, value in options.items():
            self._option((*path, one), one, value)
        needs = fields.get("needs", [])
        if not isinstance(needs, list) or not all(isinstance(one, str) for one in needs):
            self._refuse((*path, "needs"), "'needs' is a list of steps", "needs: [build]")
        return FileStep(
            name=name,
            kind=kind,
            content=content,
            files=self._files(path, content, fields.get("inputs", {})),
            needs=tuple(dict.fromkeys(needs)),
            options=CallOptions(**options),  # type: ignore[typeddict-item]
        )

    def _option(self, path: FieldPath, name: str, value: Any) -> None:
        example = OPTIONS[name]
        if type(value) is not type(example):
            self._refuse(path, f"'{name}' is not {described(value)}", f"{name}: {_shown(example)}")
        try:
            Scheduling.of({name: value})
        except (AntiphonError, ValueError) as wrong:
            hint = getattr(wrong, "hint", "") or f"{name}: {_shown(example)}"
            self._refuse(path, str(wrong), hint)

    def _files(
        self, path: FieldPath, content: Mapping[str, Any], given: Any
    ) -> dict[str, Path | tuple[str, str]]:
        """A step's inputs, and its program if that is a file beside the graph's."""
        files = self._inputs((*path, "inputs"), given)
        try:
            named = files_named(
                [*content["command"], *content.get("args", ())],
                self._folder,
                cwd=content.get("cwd", ""),
                inputs=files,
                outputs=content.get("outputs", ()),
            )
        except Misconfigured as problem:
            hint = "a command sees only its inputs: inputs: {tool: ../tool, app: {step: build}}"
            self._refuse((*path, "command", 0), problem.message, hint)
        if named.argument:
            self._refuse(
                (*path, "command"),
                f"{named.argument} is a file here, but not an input of the step",
                f"inputs: {{{named.argument}: {named.argument}}}; or put it among the outputs if"
                " the command writes it",
            )
        if named.program:
            files[named.program] = self._folder / named.program
        return files

    def _inputs(self, path: FieldPath, given: Any) -> dict[str, Path | tuple[str, str]]:
        example = "inputs: {src.tar: ../src.tar, app: {step: build}}"
        if not isinstance(given, dict):
            self._refuse(path, "'inputs' are files and outputs of steps, by name", example)
        found: dict[str, Path | tuple[str, str]] = {}
        for name, one in given.items():
            here = (*path, name)
            if isinstance(one, str) and one:
                found[name] = self._folder / one
                continue
            if not isinstance(one, dict):
                self._refuse(here, f"{described(one)} is neither a file nor a step", example)
            fields = self._mapping(here, one, OF_STEP)
            step, output = fields.get("step"), fields.get("output", name)
            if not isinstance(step, str) or not isinstance(output, str) or not output:
                self._refuse(here, "an input from a step names the step", example)
            found[name] = (step, output)
        return found

    def _mapping(self, path: FieldPath, given: Any, names: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(given, dict):
            what = f"step '{path[-1]}'" if len(path) == len(("steps", "name")) else "a graph"
            self._refuse(
                path, f"{what} is made of 'name: value' fields", f"it may have: {', '.join(names)}"
            )
        for name in given:
            if name not in names:
                close = get_close_matches(str(name), names, n=1, cutoff=CLOSE)
                hint = f"did you mean '{close[0]}'?" if close else f"it may be: {', '.join(names)}"
                self._refuse((*path, name), f"there is no field '{name}'", hint, name=True)
        return given

    def _kind(self, path: FieldPath, given: Any) -> None:
        if not isinstance(given, str) or not is_kind(given):
            self._refuse(path, f"{str(given)[:60]!r} is not a kind", "kind: ci.build")
        check_kind(given)

    def _check_links(self, step: FileStep, steps: Mapping[str, FileStep]) -> None:
        path: FieldPath = ("steps", step.name)
        for at, name in enumerate(step.needs):
            self._known((*path, "needs", at), name, steps)
        for name, one in step.files.items():
            if isinstance(one, tuple):
                self._known((*path, "inputs", name), one[0], steps)
                if "outputs" not in steps[one[0]].content and one[1] not in {"stdout", "stderr"}:
                    self._refuse(
                        (*path, "inputs", name),
                        f"step '{one[0]}' keeps no files",
                        f"give it outputs: [{one[1]}]",
                    )

    def _known(self, path: FieldPath, name: str, steps: Mapping[str, FileStep]) -> None:
        if name not in steps:
            close = get_close_matches(name, steps, n=1, cutoff=CLOSE)
            hint = f"did you mean '{close[0]}'?" if close else f"steps: {', '.join(steps)}"
            self._refuse(path, f"there is no step '{name}'", hint)

    def _in_order(self, steps: Mapping[str, FileStep]) -> list[FileStep]:
        """As they are written, but each after those that it waits for."""
        order: dict[str, FileStep] = {}
        for first in steps:
            trail, stack = dict.fromkeys([first]), [iter(steps[first].before)]
            if first in order:
                continue
            while stack:
                name = next(stack[-1], None)
                if name is None:
                    stack.pop()
                    done, _ = trail.popitem()
                    order[done] = steps[done]
                elif name in trail:
                    loop = [*list(trail)[list(trail).index(name) :], name]
                    words = " needs ".join(f"'{one}'" for one in loop)
                    hint = "take one of these out, so that one step can begin"
                    words = f"steps wait in a circle: {words}"
                    self._refuse(("steps", loop[0]), words, hint, name=True)
                elif name not in order:
                    trail[name] = None
                    stack.append(iter(steps[name].before))
        return list(order.values())


__all__ = ["FileStep", "add_to", "read_graph"]
