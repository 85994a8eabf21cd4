"""A function's parameters and its result: binds a call, encodes it, decodes it.

Annotations are looked up when the task is registered. One that cannot be found yet (a class that
is defined further down) is looked up again at the first call.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from antiphon.decoding import UNREADABLE
from antiphon.runtime.values.value_codec import PLAIN, ValueCodec, codec_of

CONTEXT: Final = "ctx"
"""The parameter that gets the job's context; no argument of a call."""
CONTEXT_TYPE: Final = "JobContext"
"""Its annotation; the class is the executors', which values do not know."""
PART: Final = "yield"
"""Under what name the codec of a stream's parts is kept: no parameter can have it."""
CALL_BEGINS: Final = b'{"args":['
"""The text of every call begins so."""


class WrittenCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call as it is written; its arguments are read one by one."""

    args: list[Raw]
    kwargs: dict[str, Raw]


STREAMS: Final = frozenset({AsyncIterator, AsyncGenerator, AsyncIterable})
_Convert = Callable[[ValueCodec, Any], Any]
_read_call: Final = msgspec.json.Decoder(WrittenCall).decode


class CallSignature:
    """How one function is called from afar."""

    def __init__(self, function: Callable[..., Any], *, name: str) -> None:
        """`name` is the task's kind, for errors. `TypeError` if an annotation cannot be carried."""
        self._function = function
        self._name = name
        whole = inspect.signature(function)
        context = whole.parameters.get(CONTEXT)
        self.wants_context = context is not None
        self.is_stream = inspect.isasyncgenfunction(_plain(function))
        """Whether it is an async generator: it sends parts, and its result is their number."""
        self._context_place = None
        """Where it comes among the positional arguments; None: it has only a name."""
        if context is not None and context.kind is not inspect.Parameter.KEYWORD_ONLY:
            self._context_place = list(whole.parameters).index(CONTEXT)
        self._signature = whole.replace(
            parameters=[one for one in whole.parameters.values() if one.name != CONTEXT]
        )
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
        kinds = [one.kind for one in self._signature.parameters.values()]
        self._plain_count = len(kinds) if all(kind is plain for kind in kinds) else -1
        """How many arguments a call has that gives all of them by place; -1: look closer."""
        self._codecs: dict[str, ValueCodec] | None = None
        with suppress(NameError):  # then again at the first call
            self._resolved()

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The text of a call; `TypeError` if the function cannot be called so.

        However its arguments were given, by place or by name, the same call has the same text.
        """
        bound = self.converted(args, kwargs, lambda codec, one: Raw(codec.encode(one)))
        return written(bound.args, bound.kwargs)

    def decode(self, text: str | bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call; `TypeError` if the function cannot be called so."""
        call = read_call(text)
        if call.kwargs or len(call.args) != self._plain_count:
            return self._decode_any(call)
        codecs = (self._codecs or self._late()).values()  # in the order of the parameters
        try:
            return tuple(map(_decode, codecs, call.args)), {}
        except TypeError:
            return self._decode_any(call)  # which says where

    def _decode_any(self, call: WrittenCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self.converted(call.args, call.kwargs, lambda codec, raw: codec.decode(raw))
        return bound.args, bound.kwargs

    def with_context(
        self, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with the context in its place."""
        place = self._context_place
        if place is None or place > len(args):
            return args, {**kwargs, CONTEXT: context}
        return (*args[:place], context, *args[place:]), kwargs

    def encode_result(self, value: Any) -> bytes:
        """The text of what the function returned; `TypeError` if it would not arrive as it is."""
        try:
            return self.result.encode(value)
        except TypeError as wrong:
            raise TypeError(f"the result of {self._name}: {wrong}") from None

    def decode_result(self, text: str | bytes) -> Any:
        """What the function returned; `TypeError` if it is not what the annotation says."""
        try:
            return self.result.decode(text)
        except TypeError as wrong:
            raise TypeError(f"the result of {self._name}: {wrong}") from None

    def encode_part(self, value: Any) -> bytes:
        """The text of what a stream yields; `TypeError` if it would not arrive as it is."""
        try:
            return (self._codecs or self._late())[PART].encode(value)
        except TypeError as wrong:
            raise TypeError(f"a part of {self._name}: {wrong}") from None

    def decode_part(self, text: str | bytes | Raw) -> Any:
        """What a stream yielded; `TypeError` if it is not what the annotation says."""
        try:
            return (self._codecs or self._late())[PART].decode(text)
        except TypeError as wrong:
            raise TypeError(f"a part of {self._name}: {wrong}") from None

    @property
    def result(self) -> ValueCodec:
        """The codec of what the function returns."""
        return (self._codecs or self._late())["return"]

    def converted(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], convert: _Convert
    ) -> inspect.BoundArguments:
        """A call with each of its arguments converted by the codec of its parameter."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise TypeError(
                f"{self._name}{self._signature} cannot be called like this: {wrong}"
            ) from None
        codecs = self._codecs or self._late()

        def one(name: str, value: Any, parameter: str = "") -> Any:
            try:
                return convert(codecs[parameter or name], value)
            except TypeError as wrong:
                raise TypeError(f"argument {name!r} of {self._name}: {wrong}") from None

        for name, value in bound.arguments.items():
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(one(f"*{name}", each, name) for each in value)
                case inspect.Parameter.VAR_KEYWORD:
                    bound.arguments[name] = {key: one(key, v, name) for key, v in value.items()}
                case _:
                    bound.arguments[name] = one(name, value)
        return bound

    def _late(self) -> dict[str, ValueCodec]:
        try:
            return self._resolved()
        except NameError as unknown:
            raise TypeError(
                f"an annotation of {self._name} cannot be looked up: {unknown}; define the name at"
                " the top of the module, outside of 'if TYPE_CHECKING:'"
            ) from None

    def _resolved(self) -> dict[str, ValueCodec]:
        hints = typing.get_type_hints(_plain(self._function), include_extras=True)
        codecs = {}
        names = (*self._signature.parameters, "return")
        if self.is_stream:
            hints |= {PART: _part_of(hints.get("return", Any), self._name), "return": int}
            names = (*names, PART)
        for name in names:
            if getattr(hints.get(name), "__name__", "") == CONTEXT_TYPE:
                raise TypeError(
                    f"parameter {name!r} of {self._name}: the parameter that gets the job's context"
                    f" is called {CONTEXT}"
                )
            try:
                codecs[name] = codec_for(hints.get(name, Any))
            except TypeError as wrong:
                where = {"return": "the result", PART: "a part"}.get(name, f"parameter {name!r}")
                raise TypeError(f"{where} of {self._name}: {wrong}") from None
        self._codecs = codecs
        return codecs


def _part_of(annotation: Any, name: str) -> Any:
    """What an async generator yields, by the annotation of what it returns."""
    if annotation is Any:
        return Any
    if typing.get_origin(annotation) not in STREAMS:
        raise TypeError(
            f"{name} is an async generator, so it returns AsyncIterator[...] with the type of its"
            " parts"
        )
    return typing.get_args(annotation)[0]


def _decode(codec: ValueCodec, raw: Raw) -> Any:
    return codec.decode(raw)


def codec_for(annotation: Any) -> ValueCodec:
    """The codec of an annotation; what says nothing about the type is plain JSON."""
    if annotation is Any or annotation is object or isinstance(annotation, typing.TypeVar):
        return PLAIN
    try:
        return codec_of(annotation)
    except TypeError as wrong:
        if "unhashable" not in str(wrong):
            raise
        return ValueCodec(annotation)


def plain_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The text of a call of a function that is not known here."""
    positional = [_plain_argument(number, one) for number, one in enumerate(args, start=1)]
    return written(positional, {name: _plain_argument(name, one) for name, one in kwargs.items()})


def written(args: Sequence[Raw], kwargs: Mapping[str, Raw]) -> bytes:
    """A call's text, of the texts of its arguments."""
    named = {name: kwargs[name] for name in sorted(kwargs)}
    return msgspec.json.encode({"args": list(args), "kwargs": named})


def read_call(text: str | bytes) -> WrittenCall:
    """A call of its text; `TypeError` if it is none."""
    try:
        return _read_call(text)
    except UNREADABLE as problem:
        raise TypeError(
            f"a call is written as {{'args': [...], 'kwargs': {{...}}}}: {problem}"
        ) from None


def _plain_argument(name: int | str, value: Any) -> Raw:
    try:
        return Raw(PLAIN.encode(value))
    except TypeError as wrong:
        raise TypeError(f"argument {name!r}: {wrong}") from None


def _plain(function: Callable[..., Any]) -> Any:
    """The function that has the annotations: what a partial or a callable object calls."""
    while hasattr(function, "func"):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        return type(function).__call__
    return inspect.unwrap(function)
