"""Requests: what a use case takes, as pydantic models with the fields that many share; how it is offered to page and
programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo

from focus_explorer.errors import InputError
from focus_explorer.settings import BACKENDS, DTYPES, SETTINGS, SPECIAL_TOKENS, TEXTS_BEGIN
from focus_explorer.usecases.service import Service
from focus_runtime.config import FocusSettings

Payload = Mapping[str, Any]  # an answer: one of focus_explorer.views.payloads
File = str  # a path from a command line, which need not be valid Unicode
LARGEST = 2**53  # up to which JSON's numbers are exact
SHOWN = 60  # characters of a refused value
WORDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
MANY = {str: "texts", int: "whole numbers", float: "numbers"}
LIMITS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


class Request(BaseModel):
    """Base of all requests: frozen, without conversions, and no field may be unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _number_of_json(cls, value: Any) -> Any:
        if _is_unusable(value):
            raise ValueError("too large, or no number")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @classmethod
    def read(cls, values: Mapping[str, Any], *, named: Callable[[str], str] = str) -> Self:
        """The request that holds these values; an InputError calls a field as `named` says."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise cls._problem(error, values, named) from error

    @classmethod
    def _problem(cls, invalid: ValidationError, values: Mapping[str, Any], named: Callable[[str], str]) -> InputError:
        error = invalid.errors()[0]
        context = error.get("ctx", {})
        if isinstance(context.get("error"), InputError):  # of a validator of ours
            return context["error"]
        name = str(error["loc"][0])
        if error["type"] == "extra_forbidden":
            known = ", ".join(named(one) for one in cls.model_fields) or "none"
            return InputError(f"there is no parameter {_shown(name)}", expected=known)
        field = cls.model_fields[name]
        limits = [words.format(f"{context[key]:,}") for key, words in LIMITS.items() if key in context]
        expected = details(field).get("expected") or (limits[0] if limits else _words(field.annotation))
        given = "missing" if error["type"] == "missing" else _shown(values[name])
        return InputError(f"{named(name)} is {given}", expected=expected)


def fields_of(request: Request) -> dict[str, Any]:
    """The values of a request by field; `dict(request)` fails where one is called `keys`."""
    return {name: getattr(request, name) for name in type(request).model_fields}


def option(default: Any = ..., text: str = "", *, ge: float | None = None, **command_line: Any) -> Any:
    """A field of a request that a command line offers, see `focus_explorer.cli.options`.

    Args:
        command_line: keywords of `argparse.add_argument` that do not follow from the field's type; `flag`, where the
            option is not called as the field; `group`, the title it stands under; `expected`, in the message about a
            value that cannot be used.
    """
    return Field(default, description=text, ge=ge, json_schema_extra=command_line)


def argument(text: str, **command_line: Any) -> Any:
    """A required field that a command line takes by its place."""
    return Field(description=text, json_schema_extra={"flag": "", **command_line})


def details(field: FieldInfo) -> dict[str, Any]:
    """How a field looks on the command line, see `option`."""
    return dict(field.json_schema_extra) if isinstance(field.json_schema_extra, dict) else {}


Settings = InstanceOf[FocusSettings]
SHIPPED = ".safetensors, .pt or .pth, or the name of a shipped file"
ONE_OF = ("one of them",)  # the group of options of which exactly one is given


def _numbers(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(sorted({int(part) for part in value.split(",") if part.strip()}))


def _names(value: Any) -> Any:
    names = tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value
    if value is not None and not all(names):
        raise ValueError("a name is empty")
    return names


Numbers = Annotated[tuple[int, ...], BeforeValidator(_numbers)]  # ascending, from words such as 1,2
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]  # from words such as a,b


def numbers(default: tuple[int, ...] | None, text: str, such_as: str, **how: Any) -> Any:
    """A field of type `Numbers`: whole numbers with commas between."""
    return option(default, text, expected=such_as, type=str, nargs=None, **how)


def setting(name: str, **how: Any) -> Any:
    known = SETTINGS[name]
    default: Any = (int(known.default) if name == "port" else known.default) or None
    return option(default, f"{known.help} (default: {known.default or 'the user data folder'})", **how)


class OnDatabase(Request):
    db: File | None = setting("db")


class AsJson(Request):
    as_json: bool = option(False, "print one JSON object", flag="--json")


class Listing(OnDatabase, AsJson):
    """What a command takes that only shows what a database holds."""


class NewFile(Request):
    out: File = option(..., "the new file (.safetensors)", metavar="FILE")


class OnRun(Listing):
    run_id: str = argument("a run, as listed by `runs`", metavar="RUN")


class OfModel(Request):
    model: File = setting("model")
    centroids: File = setting("centroids")


def focus_settings(*left_out: str) -> Any:
    """A field for the settings that replace the centroid file's: an option for each but those left out."""
    return option(FocusSettings(), left_out=left_out)


class FocusOptions(Request):
    settings: Settings = focus_settings()


class OnDevice(Request):
    device: str = option(
        "auto",
        "auto, cpu, cuda, cuda:N, mps, or split (all GPUs together); auto is the first CUDA device, else the CPU",
    )


class Placed(OnDevice):
    dtype: str = option(
        "auto",
        "of the model; auto is bfloat16 on a GPU that computes it, else float32",
        choices=("auto", *DTYPES),
    )


class Computed(Placed):
    backend: str = option(
        "auto",
        "what computes Focus attention; all compute the same pairs (default: auto, the fastest)",
        choices=BACKENDS,
    )


class TextBegins(Request):
    special_tokens: str = option(SPECIAL_TOKENS[0], TEXTS_BEGIN, choices=SPECIAL_TOKENS)


class Logged(Request):
    log_to: tuple[str, ...] = option(
        (),
        "log the training there too, may be repeated: tensorboard[:FOLDER] (default: runs), trackio[:PROJECT] or "
        "wandb[:PROJECT] (default: focus); see docs/training.md",
        action="append",
        metavar="PROGRAM[:PLACE]",
    )


class Changed(Request):
    changes: tuple[File, ...] = option(
        (),
        "a change of what Focus does, may be repeated: move:LAYER:TOKEN:GROUP, see:LAYER:TOKEN:EARLIER, "
        "silence:LAYER:GROUP, full:LAYER[:HEAD], k:LAYER[:HEAD]=N or window:LAYER[:HEAD]=N; see docs/what-if.md",
        flag="--set",
        action="append",
        metavar="CHANGE",
    )


def check_values(value: Any) -> None:
    """Refuse what JSON can say and nothing here can use, wherever it stands: half a surrogate pair, an odd number."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InputError("the request has half of a surrogate pair in a text", expected="valid Unicode") from error
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            check_values(key)
            check_values(inner)
    elif isinstance(value, list):
        for inner in value:
            check_values(inner)
    elif _is_unusable(value):
        raise InputError("the request has a number that is too large, or none", expected="numbers up to 2^53")


def _is_unusable(value: Any) -> bool:
    """A number that is none, such as NaN, or too large to be exact in JSON."""
    return isinstance(value, int | float) and not abs(value) <= LARGEST


def _words(annotation: Any) -> str:
    """What a field holds, in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        words = " or ".join(_words(one) for one in inside if one is not NoneType)
        return f"{words}, or null" if NoneType in inside else words
    if origin is Literal:
        return " or ".join(map(str, inside))
    if origin in (list, tuple, Sequence) and inside[0] in MANY:
        return f"a list of {MANY[inside[0]]}"
    return WORDS.get(origin or annotation, "another value")


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"


RUN_ID = "run_id: as listed by runs."  # in the documentation of every function that takes one


@dataclass(frozen=True)
class UseCase:
    """A function that is offered by name.

    Its first parameter is the service, its database, or `self`, which then is the service's `part`. The second is a
    `Request`, or it and those after it are the fields of one.
    """

    function: Callable[..., Any]
    page: str = ""  # its name among the page's requests; empty where it is not offered there
    api: str = ""  # its name for programs, likewise
    part: type[Any] | None = None
    public: bool = True  # whether strangers may call it by the API

    @cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """Of the function, after the first; those that JSON cannot hold are left out, and have defaults."""
        _, *others = inspect.signature(self.function, eval_str=True).parameters.values()
        return [each for each in others if _is_json(each.annotation) or _is_request(each.annotation)]

    @cached_property
    def request(self) -> type[Request]:
        """The model of its request."""
        if self._takes_request:
            declared: type[Request] = self.parameters[0].annotation
            return declared
        return request_of(self.function.__name__, self.parameters)

    def answer(self, service: Service, values: Mapping[str, Any]) -> Any:
        """What the function returns for a request of these values."""
        request = self.request.read(values)
        check_values(values)  # also what is in lists
        first = self._first(service)
        return self.function(first, request) if self._takes_request else self.function(first, **fields_of(request))

    def for_programs(self, service: Service) -> Callable[..., Any]:
        """The function as `gradio.api` takes it: named, annotated and documented, and bound to a service."""
        names = [each.name for each in self.parameters]

        def call(*values: Any, **named: Any) -> Any:
            return self.answer(service, dict(zip(names, values, strict=False)) | named)

        answered = inspect.signature(self.function, eval_str=True).return_annotation
        returned = get_origin(answered) or answered  # a list or an object: more is in the docstring
        call.__name__ = call.__qualname__ = self.api
        call.__doc__ = _documented(self.function, names)
        call.__annotations__ = {each.name: each.annotation for each in self.parameters} | {"return": returned}
        call.__signature__ = inspect.Signature(self.parameters, return_annotation=returned)  # type: ignore[attr-defined]
        return call

    @property
    def _takes_request(self) -> bool:
        return [_is_request(each.annotation) for each in self.parameters] == [True]

    def _first(self, service: Service) -> Any:
        if self.part is not None:
            return service.part(self.part)
        first = next(iter(inspect.signature(self.function).parameters))
        return service.database if first == "database" else service


def _documented(function: Callable[..., Any], names: Iterable[str]) -> str:
    """The docstring of a function, which need not say what every function says of `run_id`."""
    text = inspect.getdoc(function) or ""
    if "run_id" not in names or "run_id:" in text:
        return text
    if "Args:\n" in text:
        return text.replace("Args:\n", f"Args:\n    {RUN_ID}\n", 1)
    sentence, returns, answer = text.partition("\n\nReturns:")
    return f"{sentence}\n\nArgs:\n    {RUN_ID}{returns}{answer}"


def request_of(name: str, parameters: Iterable[inspect.Parameter]) -> type[Request]:
    """The model whose fields are parameters of a function; one that may be None may be left out."""
    fields: dict[str, Any] = {each.name: (each.annotation, _default(each)) for each in parameters}
    return create_model(name, __base__=Request, **fields)


def _default(parameter: inspect.Parameter) -> Any:
    if parameter.default is not parameter.empty:
        return parameter.default
    return None if NoneType in get_args(parameter.annotation) else ...


def _is_request(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Request)


def _is_json(annotation: Any) -> bool:
    inside = [one for one in get_args(annotation) if one is not NoneType]
    if get_origin(annotation) is Literal or annotation is Any:
        return True
    if get_origin(annotation) is Annotated:
        return _is_json(inside[0])
    return all(map(_is_json, inside)) if inside else annotation in WORDS
