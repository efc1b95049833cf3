"""`focus-explorer serve`: the page."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_compute, add_settings
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.centroids.files import pinned_name
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.visitors import VisitorLimits

MODES = """
modes of hosting, see docs/hosting.md:
  private  the default: this machine alone reaches the page, and whoever does may do everything
  lab      --auth FILE or --trusted-header NAME: users log in, and change what is theirs
  public   --public: visitors whom nobody knows explore short texts with models and centroids that you choose, each
           within limits and apart from the others; no paths, uploads, trainings or SQL
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Address, database, what the form is filled with, and who may do what."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = MODES
    add_settings(parser, "host", "port", "db", "model", "centroids")
    add_compute(parser)
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="timed passes of texts explored on the page (5, or 3 of a long text)"
    )
    parser.add_argument("--mcp", action="store_true", help="offer its functions to language models too (needs mcp)")
    _add_hosting(parser.add_argument_group("hosting"))
    _add_limits(parser.add_argument_group("limits"))
    parser.set_defaults(run=run)


def _add_hosting(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--auth", metavar="FILE", help="lab: users from a file that `focus-explorer users add` writes")
    group.add_argument(
        "--trusted-header", metavar="NAME", help="lab: the request header in which a proxy names the user"
    )
    group.add_argument(
        "--insecure", action="store_true", help="serve beyond this machine without login: everyone may do everything"
    )
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name the page answers to, as behind a proxy; NAME[:PORT]; may be repeated",
    )
    group.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="FOLDER",
        help="models and centroid files in it may be named by path in the page's fields; may be repeated",
    )
    group.add_argument("--root-path", default="", metavar="PATH", help="path below which a proxy shows the page")
    group.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve Prometheus metrics on this port of 127.0.0.1"
    )
    group.add_argument(
        "--log-json", action="store_true", help="log requests, jobs and errors as JSON lines, without users' texts"
    )


def _add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--public", action="store_true", help="public: serve visitors whom nobody knows")
    group.add_argument(
        "--allow-model",
        action="append",
        default=[],
        metavar="NAME",
        help="public: another model that visitors may choose; may be repeated",
    )
    group.add_argument(
        "--allow-frame",
        action="append",
        default=[],
        metavar="SITE",
        help="public: a site such as https://example.org that may show the page in a frame; may be repeated",
    )
    for name, each in VisitorLimits.model_fields.items():
        group.add_argument(
            VisitorLimits.option(name),
            type=type(each.default),
            default=each.default,
            metavar="N",
            help=f"{each.description} ({each.default:g})",
        )
    group.add_argument(
        "--address-header",
        metavar="NAME",
        help="public: the request header in which a proxy gives a visitor's network address, such as X-Forwarded-For",
    )
    group.add_argument(
        "--job-minutes", type=float, metavar="N", help="that one job may work (private 720, lab 60, public 2)"
    )
    group.add_argument(
        "--job-memory",
        type=float,
        metavar="GIB",
        help="memory of the page at which the job begun last is ended (nine tenths of the machine's)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve the page until it is stopped."""
    from focus_explorer.web.hosting.modes import Hosting

    hosting = Hosting(
        host=arguments.host,
        allow_hosts=arguments.allow_host,
        allow_frames=arguments.allow_frame,
        users=arguments.auth,
        trusted_header=arguments.trusted_header,
        insecure=arguments.insecure,
        root_path=arguments.root_path.rstrip("/"),
        allow_paths=arguments.allow_path,
        mcp=arguments.mcp,
        metrics_port=arguments.metrics_port,
        log_json=arguments.log_json,
        public=arguments.public,
        visitors=VisitorLimits(**{name: getattr(arguments, f"visitor_{name}") for name in VisitorLimits.model_fields}),
        models=arguments.allow_model,
        address_header=arguments.address_header,
        job_minutes=arguments.job_minutes,
        job_memory=arguments.job_memory,
    )
    from focus_explorer.web.gradio_internals import import_gradio
    from focus_explorer.web.hosting.serving import private_uploads

    private_uploads()
    import_gradio()
    from focus_explorer.web.shell import build_app

    request = AnalyzeRequest(
        model=arguments.model,
        centroids=pinned_name(Service(arguments.db), arguments.centroids),  # a hub is asked before anybody is served
        device=arguments.device,
        dtype=arguments.dtype,
        backend=arguments.backend,
        repeats=arguments.repeats,
    )
    request.check()
    app = build_app(database=arguments.db, request=request, hosting=hosting)
    app.launch(port=arguments.port, exits=True)
