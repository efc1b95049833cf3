"""Options of commands, made from the fields of a request; notes and the recorded line that commands share."""

from __future__ import annotations

import argparse
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from focus_explorer.usecases.request import ONE_OF, AsJson, FocusOptions, Request, details
from focus_runtime.config import DECLARED, FocusSettings
from focus_runtime.config import SETTINGS as FOCUS_SETTINGS

Made = TypeVar("Made")
Run = Callable[[Any], int | None]  # takes the request; returns the exit status
AddOptions = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class Action:
    """A command below a command, such as `runs rename`."""

    name: str
    help: str
    request: type[Request]
    run: Run


def command(request: type[Request], run: Run | None, actions: Sequence[Action] = (), **about: Any) -> AddOptions:
    """What adds a command's options to its parser; `run` does the work, None where an action is required."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        for name, value in about.items():
            setattr(parser, name, value)
        add_fields(parser, request)
        if run is not None:
            parser.set_defaults(run=_reading(request, run))
        if actions:
            below = parser.add_subparsers(dest="action", required=run is None, parser_class=type(parser))
            for action in actions:
                its_parser = below.add_parser(action.name, help=action.help)
                add_fields(its_parser, action.request, above=request)
                its_parser.set_defaults(run=_reading(action.request, action.run))

    return add_options


def add_fields(parser: argparse.ArgumentParser, request: type[Request], above: type[Request] | None = None) -> None:
    """Add an option or argument for each field; what is given to the command `above` is kept where not given again."""
    groups: dict[Any, Any] = {None: parser}
    own = vars(request).get("__annotations__", {})  # before those that it shares with other commands

    def place(item: tuple[str, FieldInfo]) -> tuple[bool, bool]:
        name, field = item
        is_option = details(field).get("flag") != ""
        return is_option and not field.is_required(), is_option and name not in own

    for name, field in sorted(request.model_fields.items(), key=place):
        how = details(field)
        if field.annotation is FocusSettings:
            _add_settings(parser, how["left_out"])
            continue
        how.pop("expected", None)
        title, flag = how.pop("group", None), how.pop("flag", flag_of(name))
        if title not in groups:
            one_of_them = title == ONE_OF
            groups[title] = (
                parser.add_mutually_exclusive_group(required=True) if one_of_them else parser.add_argument_group(*title)
            )
        keywords = _keywords(field, optional=bool(flag)) | how
        if keywords.get("action") == "append":
            del keywords["nargs"]
        if above is not None and name in above.model_fields and above.model_fields[name].default == field.default:
            keywords["default"] = argparse.SUPPRESS
        flags = [flag] if isinstance(flag, str) else list(flag)
        groups[title].add_argument(*(flags if flag else [name]), **keywords, **({"dest": name} if flag else {}))


def _add_settings(parser: argparse.ArgumentParser, left_out: Sequence[str]) -> None:
    for name, kind in get_type_hints(FocusSettings).items():
        if name in left_out:
            continue
        kind, declared = _plain(kind), DECLARED[name]
        keywords: dict[str, Any] = {"type": kind, "choices": declared.choices or None}
        if kind is bool:
            keywords = {"action": argparse.BooleanOptionalAction}
        elif get_origin(kind) is tuple:
            keywords = {"type": int, "nargs": 2, "metavar": ("FIRST", "LAST")}
        elif name == "budget":
            keywords = {"type": str, "metavar": "FILE"}
        file = ": a JSON file as in docs/centroid-files.md, or none" if name == "budget" else ""
        text = f"{declared.meaning}{file} (default: the centroid file's)"
        parser.add_argument(flag_of(name), dest=name, help=text, **keywords)


def _settings(arguments: argparse.Namespace, left_out: Sequence[str]) -> FocusSettings:
    values = {name: getattr(arguments, name) for name in FOCUS_SETTINGS if name not in left_out}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    if (file := values.get("budget")) is not None:
        from focus_explorer.usecases.budget import budget_of  # imports what other commands need not wait for

        values["budget"] = budget_of(file)
    return FocusSettings(**values)


def flag_of(name: str) -> str:
    return "--sinks" if name == "num_sinks" else f"--{name.replace('_', '-')}"


def _keywords(field: FieldInfo, *, optional: bool) -> dict[str, Any]:
    """What `add_argument` is to know of a field, from its type and default."""
    kind, default = _plain(field.annotation), field.default
    required = field.is_required()
    text = field.description
    if not required and kind is not bool and default not in (None, (), "") and "(default" not in str(text):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        text = f"{text} (default: {shown})".strip()
    if kind is bool:
        return {"action": "store_true", "help": text}
    known: dict[str, Any] = {"help": text, "type": kind}
    if get_origin(kind) is tuple:
        each, *more = get_args(kind)
        known |= {"type": _plain(each), "nargs": "+" if more == [...] else 1 + len(more)}
        if optional and not required and default == ():
            known["action"], default = "extend", []
    if get_origin(kind) is Literal:
        known |= {"type": str, "choices": get_args(kind)}
    if required:
        return known | ({"required": True} if optional else {})
    return known | {"default": default}


def _plain(annotation: Any) -> Any:
    """`int` of `int | None` and of annotated ones."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    inside = [one for one in get_args(annotation) if one is not NoneType]
    return _plain(inside[0]) if NoneType in get_args(annotation) else annotation


def _reading(request: type[Request], run: Run) -> Callable[[argparse.Namespace], int | None]:
    def named(name: str) -> str:
        flag = details(request.model_fields[name]).get("flag", flag_of(name))
        return flag if isinstance(flag, str) and flag else name

    def read_and_run(arguments: argparse.Namespace) -> int | None:
        values = {name: getattr(arguments, name) for name in request.model_fields if hasattr(arguments, name)}
        if "settings" in request.model_fields:
            left_out = details(request.model_fields["settings"])["left_out"]
            values["settings"] = _settings(arguments, left_out)
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return run(request.read(values | lists, named=named))

    return read_and_run


def fill(kind: Callable[..., Made], options: Request, **others: Any) -> Made:
    """The request of a use case with the options of the same names, and others."""
    names = inspect.signature(kind).parameters.keys() & type(options).model_fields.keys()
    chosen = options.settings.chosen() if isinstance(options, FocusOptions) else {}
    return kind(**{name: getattr(options, name) for name in names} | chosen | others)


def print_result(options: AsJson, result: Any, describe: Callable[[Any], str]) -> None:
    print(json.dumps(result, ensure_ascii=False, default=str) if options.as_json else describe(result))


def print_note(message: str) -> None:
    """Print a note on standard error, where it does not disturb a script that reads the result."""
    print(f"note: {message}", file=sys.stderr)


def command_line() -> str:
    """The command as it was typed, for the record kept with a run."""
    words = shlex.join(["focus-explorer", *sys.argv[1:]])
    return words.encode("utf-8", "backslashreplace").decode()  # file names need not be UTF-8
