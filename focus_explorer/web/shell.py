"""The page: one Gradio Blocks with four tabs. Everything it shows comes from the service."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
from starlette.types import ASGIApp

from focus_explorer import settings
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze_sample, check_first_run
from focus_explorer.usecases.jobs import memory_watched, set_job_limits
from focus_explorer.usecases.labels import purge_expired
from focus_explorer.usecases.models import ModelStore
from focus_explorer.usecases.names import KnownNames, allowed_folders
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.visitors import PublicNames, VisitorService
from focus_explorer.web import api
from focus_explorer.web.browser import head_html, host_style, static_paths
from focus_explorer.web.downloads import routes
from focus_explorer.web.gradio_internals import calm_queue, function_names, session_user
from focus_explorer.web.hosting import guard
from focus_explorer.web.hosting.modes import Hosting, end_jobs, exit_at_last, stop_signals, wait_for
from focus_explorer.web.hosting.observing import JSONLog, Metrics, Observed
from focus_explorer.web.tabs import centroids as centroids_tab
from focus_explorer.web.tabs import explore as explore_tab
from focus_explorer.web.tabs import runs as runs_tab
from focus_explorer.web.tabs import training as training_tab
from focus_explorer.web.text import PUBLIC_NOTICE, SKIP, TABS, TITLE

THEME = gr.themes.Base(
    primary_hue=gr.themes.colors.indigo,
    neutral_hue=gr.themes.colors.slate,
    font=["system-ui", "-apple-system", "Segoe UI", "sans-serif"],
    font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "monospace"],
    radius_size=gr.themes.sizes.radius_md,
).set(  # one shade darker than the default: white on it is to be read easily (WCAG AA)
    body_background_fill_dark="#0f141c",
    block_background_fill_dark="#161c26",
    input_background_fill_dark="#1a212c",
    border_color_primary_dark="#2b3441",
    button_primary_background_fill="*primary_600",
    button_primary_background_fill_hover="*primary_700",
    button_primary_background_fill_dark="*primary_600",
    button_primary_background_fill_hover_dark="*primary_700",
)

SWEEP = (3600, 24 * 3600)  # seconds between two looks at what was uploaded, and its age when it is removed
MOST_REQUESTS = 64  # that wait; further ones are turned away


@dataclass(frozen=True)
class App:
    """The built page and what it needs to start."""

    blocks: gr.Blocks
    service: Service
    request: AnalyzeRequest
    hosting: Hosting = field(default_factory=Hosting)

    @cached_property
    def log(self) -> JSONLog | None:
        return JSONLog() if self.hosting.log_json else None

    @cached_property
    def metrics(self) -> Metrics:
        return Metrics(self.service.database.path)

    def launch(self, *, port: int | None = None, block: bool = True, exits: bool = False) -> Any:
        """Serve the page; the first visit of an empty database starts its first run.

        Args:
            exits: the process only serves the page: once stopped it ends in time, also where a thread is stuck.

        Raises:
            InputError: the database, model or centroids cannot be used, no port is free, or MCP is not installed.
        """
        if self.hosting.mcp and find_spec("mcp") is None:
            raise InputError("--mcp needs the package `mcp`", fix="install it with `pip install 'focus-explorer[mcp]'`")
        free = _free_port(self.hosting.host, port or int(settings.SETTINGS["port"].default))
        _import_transformers()
        self._prepare()
        set_job_limits(self.hosting.limits)
        log = nullcontext() if self.log is None else self.log.alone()
        with log, stop_signals() as stopping, self.metrics.serving(self.hosting.metrics_port):
            served = self._serve(free)
            print(f"Focus Explorer is at {self.blocks.local_url} (Ctrl-C stops it)", flush=True)
            if isinstance(self.service, VisitorService):
                threading.Thread(target=self.service.sweep_for_ever, args=(stopping,), daemon=True).start()
            if block:
                with memory_watched():
                    wait_for(stopping)
                if exits:
                    exit_at_last()
                end_jobs()
                self.blocks.close(verbose=False)
        return served

    def _prepare(self) -> None:
        """Prepare the database before anybody visits: only its host writes that of a public page."""
        service = self.service
        if isinstance(service, VisitorService):
            service = Service(service.shown.path, models=service.models)
        purge_expired(service)
        check_first_run(service, self.request)
        if service is not self.service and not list_runs(service.database):
            with stage_bar() as progress:
                analyze_sample(service, self.request, progress)

    def _serve(self, port: int) -> Any:
        queued = self.blocks.queue(max_size=MOST_REQUESTS, default_concurrency_limit=8)
        calm_queue(queued)
        try:
            return queued.launch(
                server_name=self.hosting.host,
                server_port=port,
                theme=THEME,
                css_paths=[host_style()],
                head=head_html(),
                footer_links=["api"],
                max_file_size=settings.MAX_UPLOAD_BYTES,
                show_error=False,
                ssr_mode=False,
                run_history=False,
                mcp_server=self.hosting.mcp,
                num_workers=0,  # processes of Gradio's that would serve files on ports of their own, without the guard
                prevent_thread_lock=True,
                quiet=True,  # Gradio's lines name options of its own, one of which would open the page to anyone
                root_path=self.hosting.root_path or None,
                auth=None if self.hosting.users is None else guard.Login(self.hosting.users).check,
                app_kwargs=self.app_kwargs(),
            )
        except OSError as error:
            raise InputError(f"the page cannot be served: {error}", fix="choose another --host or --port") from error
        except httpx.TransportError as error:  # Gradio asks its own server to begin, by the name localhost
            self.blocks.close(verbose=False)
            raise InputError(
                f"the page is served, but cannot be reached at {self.blocks.local_url} from here: {error}",
                expected="a machine that knows localhost, and no proxy for it",
                fix="add `127.0.0.1 localhost` to /etc/hosts, or localhost to the variable NO_PROXY",
            ) from error

    def app_kwargs(self) -> dict[str, Any]:
        """What the web application gets besides Gradio's: our routes, and the guard around all of them."""
        own = [*routes(self.service), *guard.health_routes(self.service)]
        functions = function_names(self.blocks)

        def wrap(inside: ASGIApp, app: Any) -> ASGIApp:
            inside = guard.AroundGradio(inside, functions)
            if self.log is not None:
                self.log.take_over()  # the server has set up a log of its own
            if isinstance(self.service, VisitorService):
                known: ASGIApp = guard.Visitors(
                    inside, self.service.seen, self.hosting.address_header, framed=bool(self.hosting.allow_frames)
                )
            else:
                known = guard.LoginRequired(
                    inside, self.hosting, lambda scope: session_user(app, guard.cookies_of(scope))
                )
            guarded = guard.Guard(known, self.hosting.addresses, self.hosting.allow_frames)
            return Observed(guarded, self.metrics, functions, own)

        return {"routes": own, "lifespan": guard.guarded_lifespan(wrap)}


def _import_transformers() -> None:
    """Import it while there is one thread: one that waited for the import would be handed an empty module."""
    import transformers  # noqa: F401


def _free_port(host: str, first: int) -> int:
    for port in range(first, first + 50):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except PermissionError as error:
                raise InputError(f"port {port} is not allowed", fix="choose a --port above 1023") from error
            except OverflowError as error:
                raise InputError(f"port {port} does not exist", expected="1 to 65535") from error
            except OSError as error:
                if isinstance(error, socket.gaierror) or error.errno != errno.EADDRINUSE:
                    raise InputError(
                        f"the address {host!r} is not one of this machine's", fix="use 127.0.0.1 or 0.0.0.0"
                    ) from error
                continue
            return port
    raise InputError(f"ports {first} to {first + 49} are all in use", fix="choose another --port")


def build_app(
    *, database: str | Path | None = None, request: AnalyzeRequest | None = None, hosting: Hosting | None = None
) -> App:
    """Build the page; nothing is loaded or served yet.

    Args:
        database: DuckDB file; the user's own when None.
        request: model, centroids, device, precision and backend preselected in the form.
        hosting: where it is served and who may do what; a private page on this machine when None.
    """
    settings.prepare_libraries()
    request = request or AnalyzeRequest()
    models = ModelStore(device=request.device or "auto", dtype=request.dtype or "auto")
    hosting = hosting or Hosting()
    service = _service(database, models, request, hosting)
    gr.set_static_paths(static_paths())
    with api.Page(title=TITLE, fill_width=True, analytics_enabled=False, delete_cache=SWEEP) as blocks:
        skip = f'<a class="fe-skip" href="#fe-view">{SKIP}</a>'
        gr.HTML(f'{skip}<header class="fe-masthead"><h1>{TITLE}</h1></header>', padding=False)
        with gr.Tabs(elem_id="fe-tabs") as tabs:
            with gr.Tab(TABS["explore"], id="explore"):
                if hosting.public:
                    limits = hosting.visitors
                    notice = PUBLIC_NOTICE.format(tokens=limits.tokens, hours=limits.hours)
                    gr.HTML(f'<p class="fe-notice">{notice}</p>', padding=False, elem_id="fe-public")
                explore = explore_tab.build(service, request)
            if not hosting.public:
                with gr.Tab(TABS["training"], id="training"):
                    training_tab.build(service, request, explore, tabs)
            with gr.Tab(TABS["centroids"], id="centroids") as files:
                centroids_tab.build(service, request, explore, files, tabs)
            with gr.Tab(TABS["runs"], id="runs") as runs:
                runs_tab.build(service, explore, runs, blocks)
        explore_tab.connect_load(blocks, service, request, explore)
        api.build(service, request)
    return App(blocks, service, request, hosting)


def _service(database: str | Path | None, models: ModelStore, request: AnalyzeRequest, hosting: Hosting) -> Service:
    """What the page works on, and what its fields may name."""
    known: dict[str, Any] = {
        "models": frozenset({request.model, *hosting.models}),
        "centroids": frozenset({request.centroids}),
        "folders": allowed_folders(hosting.allow_paths),
    }
    if hosting.public:
        service: Service = VisitorService(database or settings.default_database(), models, hosting.visitors)
        service.names = PublicNames(database=service.database, limits=hosting.visitors, **known)
    else:
        service = Service(database, models=models)
        service.names = KnownNames(database=service.database, **known)
    return service
