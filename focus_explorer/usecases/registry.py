"""How a use case is offered: by name, with its request, to the page, to programs and language models.

The table of all that are offered this way is focus_explorer/web/requests/table.py; commands have theirs in cli/main.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import create_model

from focus_explorer.usecases.request import WORDS, Request, check_values, fields_of
from focus_explorer.usecases.service import Service

RUN_ID = "run_id: as listed by runs."  # in the documentation of every function that takes one


@dataclass(frozen=True)
class UseCase:
    """A function that is offered by name.

    Its first parameter is the service, its database, or `self`, which then is the service's `part`. The second is a
    `Request`, or it and those after it are the fields of one.

    Attributes:
        page, api: its name among the page's requests, and for programs; empty where it is not offered there.
        public: whether strangers may call it by the API.
    """

    function: Callable[..., Any]
    page: str = ""
    api: str = ""
    part: type[Any] | None = None
    public: bool = True

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
