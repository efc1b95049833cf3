"""The command line as the argument parsers have it: every command, its actions and its options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from focus_explorer.cli.main import COMMANDS, parser


def command_line() -> str:
    """Markdown: a section a command, with a table of its arguments, and one for each of its actions."""
    whole = parser()
    parts = []
    for name, command in _commands(whole):
        parts.append(f"## {name}\n\n{_sentence(COMMANDS[name][1])}\n\n{_described(command)}")
        for action, below in _commands(command):
            parts.append(f"### {name} {action}\n\n{_described(below)}")
    return "\n\n".join(parts)


def _commands(whole: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _described(command: argparse.ArgumentParser) -> str:
    parts = [f"```text\n{_usage(command)}\n```"]
    for group in command._action_groups:
        rows = [_row(action) for action in group._group_actions if _shown(action)]
        if rows:
            own = group.title not in ("positional arguments", "options")
            title = [f"**{group.title}**" + (f" ({group.description})" if group.description else "")] if own else []
            parts += [*title, "\n".join(["| argument | meaning |", "|---|---|", *rows])]
    return "\n\n".join(parts)


def _usage(command: argparse.ArgumentParser) -> str:
    """The command with what has to be given; the options stand in the table."""
    needed = [
        action for action in command._actions if _shown(action) and (action.required or not action.option_strings)
    ]
    words = [
        " ".join([*action.option_strings[:1], _value(action)]).strip() if action.required else f"[{_value(action)}]"
        for action in needed
    ]
    return " ".join([command.prog, *words, "[OPTIONS]"])


def _shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, (argparse._SubParsersAction, argparse._HelpAction))
    return not hidden and action.help != argparse.SUPPRESS


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        name = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    else:
        name = action.dest.upper()
    return f"{name} …" if action.nargs in ("+", "*") else name


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    value = _value(action)
    value = f"`{value}`" if value else ""
    choices = ", ".join(f"`{choice}`" for choice in action.choices or ())
    meaning = "; ".join(filter(None, [_escaped(action.help or ""), choices and f"one of {choices}"]))
    return f"| {' '.join([names, value]).strip()} | {meaning} |"


def _sentence(text: str) -> str:
    return _escaped(text[:1].upper() + text[1:]) + "."


def _escaped(text: str) -> str:
    """Text of a help line, in which `%%` stands for a per cent sign, for a cell of a table."""
    text = re.sub(r"%\((\w+)\)s", "", text).replace("%%", "%")
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
