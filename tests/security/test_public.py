"""A public page: visitors whom nobody knows, each within limits and apart from the others."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
import time
from types import SimpleNamespace

import pytest

from focus_explorer.errors import InputError, StoreError
from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.labels import all_runs
from focus_explorer.usecases.models import ModelStore
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import VISITOR, acting_as
from focus_explorer.usecases.visitors import Share, VisitorLimits, VisitorService
from focus_explorer.web.hosting.guard import BURST, COOKIE, HEADER, USER_HEADER, Visitors, network
from focus_explorer.web.requests.table import API
from tests.explorer.conftest import TEXT
from tests.security.conftest import serving

NOT_FOR_VISITORS = {name for name, use_case in API.items() if not use_case.public}
FIELDS = {"top_k": 1, "window": 8, "sinks": 2}


@pytest.fixture(scope="session")
def shown(stored, tmp_path_factory):
    """(database, run, request): a database with one run, to which no other test adds any."""
    database, request = tmp_path_factory.mktemp("shown") / "shown.duckdb", stored[2]
    return database, analyze(Service(database), TEXT, request, command="focus-explorer test"), request


@pytest.fixture
def copied(shown, tmp_path):
    """A copy of that database of the test's own."""
    shutil.copyfile(shown[0], tmp_path / "shown.duckdb")
    return SimpleNamespace(run_id=shown[1], database=tmp_path / "shown.duckdb")


@pytest.fixture(scope="module")
def site(shown):
    """A public page, which takes seconds to build."""
    with serving(shown[0], shown[2], public=True, visitors=VisitorLimits(tokens=400, runs=60)) as page:
        yield page


@pytest.fixture
def public(shown, site):
    """That page in a new browser, which has taken the cookie."""
    page = site.other_browser()
    page.client.get("/")
    return SimpleNamespace(page=page, run_id=shown[1], request=shown[2], database=shown[0])


def folders_of(public):
    """The folders of all visitors who have written something."""
    return set(public.database.with_name(f"{public.database.name}.visitors").glob("*"))


def explored(page, request, text=TEXT, **fields):
    """(numbers of a new run, its problem): a text explored through the API."""
    names = ("text", "model", "centroids", "top_k", "window", "sinks", "assignment", "max_tokens", "device", "dtype")
    values = {
        "text": text,
        "model": request.model,
        "centroids": request.centroids,
        "assignment": "causal",
        "max_tokens": 0,
        "device": "auto",
        "dtype": "auto",
    }
    return page.call("analyze", *[(values | FIELDS | fields)[name] for name in names], "auto")


def runs_of(page):
    """Ids of the runs that a browser sees."""
    listed = page.server("fe-runs", "load_runs", {}).json()
    return {run["run_id"] for run in listed["runs"]}


@pytest.mark.slow
def test_a_visitors_runs_are_theirs_alone(public):
    page, other = public.page, public.page.other_browser()
    other.client.get("/")
    before, others = public.database.read_bytes(), folders_of(public)
    numbers, problem = explored(page, public.request)
    assert problem == ""
    own = numbers["run_id"]
    assert runs_of(page) == {public.run_id, own}
    assert runs_of(other) == {public.run_id}  # the shown one
    for function in ("run", "groups", "layers", "tokens", "delete"):
        answer, problem = other.call(function, own, *([0, 5] if function == "tokens" else []))
        assert answer is None, function
        assert "there is no run" in problem, function
    loaded = other.client.post(
        "/gradio_api/component_server",
        json={"data": {"run": own}, "fn_name": "load_run", "component_id": _component(other), "session_hash": "s"},
    ).json()
    assert "there is no run" in loaded["error"]
    assert public.database.read_bytes() == before  # visitors write nothing into what everyone sees
    explored(other, public.request)
    assert len(runs_of(other)) == 2
    assert own not in runs_of(other)
    folders = folders_of(public) - others
    assert len(folders) == 2
    assert {oct(folder.stat().st_mode & 0o777) for folder in folders} == {"0o700"}


def _component(page):
    return next(i for i, block in page.blocks.blocks.items() if block.elem_id == "fe-view")


def test_a_visitor_may_delete_their_own_runs_and_only_their_copy_of_the_shown_one(public):
    page, other = public.page, public.page.other_browser()
    other.client.get("/")
    assert page.server("fe-runs", "remove", {"run": public.run_id}).json() == {"deleted": True}
    assert runs_of(other) == {public.run_id}
    assert [run["deleted_at"] for run in all_runs(Service(public.database))] == [None]


@pytest.mark.slow
def test_a_visitor_is_who_holds_the_cookie(public):
    page, others = public.page, folders_of(public)
    own = explored(page, public.request)[0]["run_id"]
    token = page.client.cookies[COOKIE]
    assert re.fullmatch("[0-9a-f]{64}", token)
    program = page.other_browser()
    program.client.headers[HEADER] = token
    assert own in runs_of(program)
    forged = page.other_browser()
    [folder] = (each.name for each in folders_of(public) - others)
    for header, value in ((USER_HEADER, VISITOR + folder), (HEADER, folder), (HEADER, "x"), ("cookie", f"{COOKIE}=")):
        forged.client.headers = {header: value}
        assert own not in runs_of(forged), header  # the name on the disk is not what lets in
    assert page.client.get("/").headers.get("set-cookie") is None  # it has one
    fresh = page.other_browser().client.get("/").headers["set-cookie"]
    assert "HttpOnly" in fresh
    assert "SameSite=Lax" in fresh


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"model": "/etc/passwd"}, "is no model of this page"),
        ({"model": "Qwen/Qwen3-0.6B"}, "is no model of this page"),
        ({"centroids": "/etc/passwd"}, "there are no centroids"),
        ({"max_tokens": 401}, "the longest text is 401 tokens; expected at most 400 here"),
        ({"device": "cuda"}, "the device is 'cuda'; expected auto"),
        ({"dtype": "bfloat16"}, "the number format is 'bfloat16'; expected auto"),
        ({"text": "word " * 2000}, "the text has 10,000 characters; expected at most 6,400 on this page"),
    ],
)
def test_a_visitor_gets_what_the_host_has_chosen(public, fields, part):
    others = folders_of(public)
    answer, problem = explored(public.page, public.request, **fields)
    assert answer is None
    assert part in problem
    assert folders_of(public) == others


def test_a_text_that_is_typed_is_no_longer_either(public):
    request = {"what": "live_groups", "run": public.run_id, "text": "word " * 2000, "session": "s"}
    answer = public.page.server("fe-runs", "ask", request).json()
    assert "the text has 10,000 characters" in answer["error"]


def test_a_public_page_has_no_sql_no_trainings_and_no_uploads(public):
    page = public.page
    offered = {function.api_name for function in page.blocks.fns.values() if function.api_name}
    assert {"sql", "use_budget"} == NOT_FOR_VISITORS
    assert not offered & {*NOT_FOR_VISITORS, "upload_centroids", "start_training"}
    elements = {block.elem_id for block in page.blocks.blocks.values()}
    assert not elements & {"fe-sql", "fe-upload", "fe-trainings"}
    assert page.call("sql", "select 1")[1].startswith("404")
    refused = page.client.post("/gradio_api/upload", files={"files": ("a.txt", b"text")})
    assert (refused.status_code, refused.json()["detail"]) == (403, "This page takes no uploads.")
    for function, values in (("rename", {"name": "x"}), ("remove", {}), ("use_file_budget", {"point": 0})):
        answer = page.server("fe-centroid-list", function, {"file": "default", **values}).json()
        assert "the files of this page are its host's" in answer["error"], function
    assert page.server("fe-centroid-list", "load_files", {}).json()["files"]


def test_commands_that_are_shown_name_no_folder_of_the_machine(public):
    request = {"what": "export_command", "run": public.run_id, "kind": "bundle"}
    answer = public.page.server("fe-runs", "ask", request).json()
    assert str(public.database.parent) not in answer["command"]
    assert "--db shown.duckdb" in answer["command"]


def test_runs_and_time_are_shared_fairly(copied):
    service = VisitorService(copied.database, ModelStore(), VisitorLimits(runs=2, minutes=1))
    service.seen("ada", "1.2.3.4")
    with acting_as(VISITOR + "ada"):
        service.admit_run()
        service.admit_run()
        with pytest.raises(InputError, match=r"you have used .* \(2 runs\); try again in about 60 min"):
            service.admit_run()
        service.admit()
        service.spend(61)
        with pytest.raises(InputError, match=r"\(1 minutes of the model\)"):
            service.admit()
    with acting_as(VISITOR + "bob"):
        service.admit_run()
        service.admit()


def test_another_cookie_is_no_way_around_the_limits():
    share = Share(2, "2 runs")
    for number in range(8):  # four visitors' shares of one address
        share.admit(f"visitor {number}", "1.2.3.4")
        share.spend(f"visitor {number}", "1.2.3.4", 1)
    with pytest.raises(InputError, match="your network address has used"):
        share.admit("visitor 9", "1.2.3.4")
    share.admit("visitor 9", "1.2.3.5")


def test_a_share_is_free_again_after_an_hour():
    clock = [0.0]
    share = Share(10, "ten", lambda: clock[0])
    share.spend("ada", "1.2.3.4", 6)
    clock[0] = 600
    share.spend("ada", "1.2.3.4", 6)
    assert share.seconds_left("ada") == 3000
    assert share.seconds_left("ada", times=2) == 0
    clock[0] = 3601
    assert share.seconds_left("ada") == 0


def test_who_works_for_no_visitor_writes_nothing(copied):
    service = VisitorService(copied.database, ModelStore(), VisitorLimits())
    assert [run["run_id"] for run in all_runs(service)] == [copied.run_id]
    with pytest.raises(StoreError, match="cannot be changed"), service.database.write():
        pass
    with pytest.raises(StoreError, match="no visitor"):
        service.admit_run()


def test_kept_runs_are_counted_with_the_deleted_ones(copied):
    service = VisitorService(copied.database, ModelStore(), VisitorLimits(kept_runs=1, runs=50))
    with acting_as(VISITOR + "ada"):
        service.admit_run()
        with service.database.write() as connection:
            columns = [row[0] for row in connection.execute("DESCRIBE runs").fetchall()]
            values = ", ".join("'another'" if name == "run_id" else name for name in columns)
            connection.execute(f"INSERT INTO runs SELECT {values} FROM runs")
        with pytest.raises(InputError, match="you have 1 run on this page; expected at most 1, deleted ones included"):
            service.admit_run()


def test_what_a_visitor_left_is_removed_in_time(copied):
    service = VisitorService(copied.database, ModelStore(), VisitorLimits(hours=2))
    for visitor in ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"):
        with acting_as(VISITOR + visitor), service.database.write():
            pass
    old = time.time() - 7300
    os.utime(service.folder / "aaaaaaaaaaaaaaaa", (old, old))
    (service.folder / "not ours").mkdir()
    os.utime(service.folder / "not ours", (old, old))
    service.sweep()
    assert len(list(service.folder.iterdir())) == 3  # in memory: they were here a moment ago
    service._services["aaaaaaaaaaaaaaaa"].used = time.monotonic() - 4000
    service.sweep()
    assert sorted(path.name for path in service.folder.iterdir()) == ["bbbbbbbbbbbbbbbb", "not ours"]
    with acting_as(VISITOR + "aaaaaaaaaaaaaaaa"):  # who comes back begins anew
        assert [run["run_id"] for run in all_runs(service)] == [copied.run_id]


def test_visitors_files_take_no_more_than_there_is_room_for(copied, monkeypatch):
    monkeypatch.setattr("focus_explorer.usecases.visitors.MOST_BYTES", 1)
    service = VisitorService(copied.database, ModelStore(), VisitorLimits())
    with (
        acting_as(VISITOR + "ada"),
        pytest.raises(StoreError, match="keeps as many visitors' runs as it can; try again tomorrow"),
        service.database.write(),
    ):
        pass
    assert not service.folder.exists() or not list(service.folder.rglob("*.duckdb"))


async def _asked(app, address="1.2.3.4", path="/", headers=()):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "method": "GET", "client": (address, 1), "headers": list(headers)}
    await app(scope, None, send)
    return sent[0]["status"]


def test_too_many_requests_of_one_address_are_turned_away():
    async def ok(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    clock = [0.0]
    app = Visitors(ok, lambda visitor, address: None, "X-Forwarded-For", clock=lambda: clock[0])
    proxied = [(b"x-forwarded-for", b"9.9.9.9, 1.2.3.4")]  # a client may send the first, the proxy adds the last

    async def flood():
        return [await _asked(app, "127.0.0.1", headers=proxied) for _ in range(int(BURST) + 1)]

    answers = []

    def work():
        answers.extend(asyncio.run(flood()))
        answers.append(asyncio.run(_asked(app, "127.0.0.1", headers=[(b"x-forwarded-for", b"1.2.3.5")])))
        clock[0] = 1.0
        answers.append(asyncio.run(_asked(app, "127.0.0.1", headers=proxied)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [200] * int(BURST) + [429, 200, 200]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("1.2.3.4", "1.2.3.4"),
        (" 1.2.3.4", "1.2.3.4"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("[2001:db8:1:2:9::1]", "2001:db8:1:2::"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("", "unknown"),
        ("nonsense", "unknown"),
    ],
)
def test_addresses_are_counted_by_network(address, expected):
    assert network(address) == expected


def test_every_function_for_programs_is_known_to_be_for_visitors_or_not(public, private):
    """A new function is looked at before strangers may call it."""
    offered = {f.api_name for f in public.page.blocks.fns.values() if f.api_name and f.api_visibility == "public"}
    everything = {f.api_name for f in private.blocks.fns.values() if f.api_name and f.api_visibility == "public"}
    assert everything - offered == {*NOT_FOR_VISITORS, "upload_centroids", "start_training"}
    assert offered == {
        *("analyze", "runs", "run", "groups", "layers", "tokens", "predictions", "compare"),
        *("centroids", "compare_centroids", "budgets", "agreement", "group_names", "name_group", "map"),
        *("mask", "distances", "attention", "attention_links", "settings", "lengths", "beside", "missing_links"),
        *("head_costs", "what_if", "statistics", "rename", "note", "tag", "delete", "undelete"),
    }
