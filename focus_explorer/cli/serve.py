"""`focus-explorer serve` and `users`: the page, and who may log in to a lab's."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any

from focus_explorer.cli.options import Action, command, fill
from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.centroids.files import pinned_name
from focus_explorer.usecases.request import Computed, File, OfModel, OnDatabase, Request, argument, option, setting
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import add_user
from focus_explorer.usecases.visitors import VisitorLimits

MODES = """
modes of hosting, see docs/hosting.md:
  private  the default: this machine alone reaches the page, and whoever does may do everything
  lab      --auth FILE or --trusted-header NAME: users log in, and change what is theirs
  public   --public: visitors whom nobody knows explore short texts with models and centroids that you choose, each
           within limits and apart from the others; no paths, uploads, trainings or SQL
"""

HOSTING, LIMITS = ("hosting",), ("limits",)
USUAL = VisitorLimits()


def _visitor_limit(name: str, text: str) -> Any:
    usual = getattr(USUAL, name)
    return option(usual, f"{text} (default: {usual:g})", metavar="N", group=LIMITS)


def _several(flag: str, metavar: str, text: str, group: tuple[str]) -> Any:
    text = f"{text}; may be repeated"
    return option((), text, flag=flag, action="append", metavar=metavar, group=group)


class ServeOptions(OnDatabase, OfModel, Computed):
    host: str = setting("host")
    port: int = setting("port")
    repeats: int | None = option(
        None, "timed passes of texts explored on the page (5, or 3 of a long text)", metavar="N"
    )
    mcp: bool = option(False, "offer its functions to language models too (needs mcp)")
    users: File | None = option(
        None,
        "lab: users from a file that `focus-explorer users add` writes",
        flag="--auth",
        metavar="FILE",
        group=HOSTING,
    )
    trusted_header: str | None = option(
        None, "lab: the request header in which a proxy names the user", metavar="NAME", group=HOSTING
    )
    insecure: bool = option(False, "serve beyond this machine without login: everyone may do everything", group=HOSTING)
    allow_hosts: tuple[str, ...] = _several(
        "--allow-host", "NAME", "another name the page answers to, as behind a proxy; NAME[:PORT]", HOSTING
    )
    allow_paths: tuple[File, ...] = _several(
        "--allow-path", "FOLDER", "models and centroid files in it may be named by path in the page's fields", HOSTING
    )
    root_path: str = option("", "path below which a proxy shows the page", metavar="PATH", group=HOSTING)
    metrics_port: int | None = option(
        None, "serve Prometheus metrics on this port of 127.0.0.1", metavar="PORT", group=HOSTING
    )
    log_json: bool = option(False, "log requests, jobs and errors as JSON lines, without users' texts", group=HOSTING)
    public: bool = option(False, "public: serve visitors whom nobody knows", group=LIMITS)
    models: tuple[File, ...] = _several(
        "--allow-model", "NAME", "public: another model that visitors may choose", LIMITS
    )
    allow_frames: tuple[str, ...] = _several(
        "--allow-frame", "SITE", "public: a site such as https://example.org that may show the page in a frame", LIMITS
    )
    visitor_tokens: int = _visitor_limit("tokens", "longest text")
    visitor_runs: int = _visitor_limit("runs", "texts explored in an hour")
    visitor_minutes: float = _visitor_limit("minutes", "that the model works for a visitor in an hour")
    visitor_kept_runs: int = _visitor_limit("kept_runs", "runs of a visitor at a time")
    visitor_hours: float = _visitor_limit("hours", "after the last visit, when a visitor's runs are removed")
    address_header: str | None = option(
        None,
        "public: the request header in which a proxy gives a visitor's network address, such as X-Forwarded-For",
        metavar="NAME",
        group=LIMITS,
    )
    job_minutes: float | None = option(
        None, "that one job may work (private 720, lab 60, public 2)", metavar="N", group=LIMITS
    )
    job_memory: float | None = option(
        None,
        "memory of the page at which the job begun last is ended (nine tenths of the machine's)",
        metavar="GIB",
        group=LIMITS,
    )


def run_serve(options: ServeOptions) -> None:
    from focus_explorer.web.hosting.modes import Hosting

    visitors = VisitorLimits(**{name: getattr(options, f"visitor_{name}") for name in VisitorLimits.model_fields})
    hosting = fill(Hosting, options, visitors=visitors, root_path=options.root_path.rstrip("/"))
    from focus_explorer.web.gradio_internals import import_gradio
    from focus_explorer.web.hosting.modes import private_uploads

    private_uploads()
    import_gradio()
    from focus_explorer.web.shell import build_app

    centroids = pinned_name(Service(options.db), options.centroids)  # a hub is asked before anybody is served
    request = fill(AnalyzeRequest, options, centroids=centroids)
    request.check()
    app = build_app(database=options.db, request=request, hosting=hosting)
    app.launch(port=options.port, exits=True)


class AddUser(Request):
    name: str = argument("of the user", metavar="NAME")
    file: File = option(..., "made where it is missing; for `serve --auth FILE`", metavar="FILE")


def _add_user(options: AddUser) -> None:
    """Ask for the password, without showing it, and keep its hash."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise InputError("the two passwords differ", fix="try again")
    else:
        password = sys.stdin.readline().rstrip("\n")
    add_user(options.file, options.name, password)
    print(f"{options.name} can log in where the page is served with --auth {options.file}")


COMMANDS = {
    "serve": command(ServeOptions, run_serve, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=MODES),
    "users": command(
        Request,
        None,
        [Action("add", "add a user, or change a password, which is asked for", AddUser, _add_user)],
    ),
}
