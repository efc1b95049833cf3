"""`focus-explorer users`: who may log in to a lab's page."""

from __future__ import annotations

import argparse
import getpass
import sys

from focus_explorer.errors import InputError
from focus_explorer.usecases.users import add_user


def add_options(parser: argparse.ArgumentParser) -> None:
    """The action, the user and the file."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=type(parser))
    add = actions.add_parser("add", help="add a user, or change a password, which is asked for")
    add.add_argument("name", metavar="NAME", help="of the user")
    add.add_argument("--file", required=True, metavar="FILE", help="made where it is missing; for `serve --auth FILE`")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Ask for the password, without showing it, and keep its hash."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise InputError("the two passwords differ", fix="try again")
    else:
        password = sys.stdin.readline().rstrip("\n")
    add_user(arguments.file, arguments.name, password)
    print(f"{arguments.name} can log in where the page is served with --auth {arguments.file}")
