"""The file of a lab's users, and logging in."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError
from focus_explorer.usecases.labels import all_runs
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import COST, add_user, is_password, read_users
from focus_explorer.web.hosting.guard import MOST_ATTEMPTS, USER_HEADER, Login
from focus_explorer.web.hosting.observing import JSONFormatter
from tests.explorer.conftest import TEXT
from tests.security.conftest import Page, serving

pytestmark = pytest.mark.slow


@pytest.fixture
def users(tmp_path, monkeypatch):
    monkeypatch.setitem(COST, "n", 2**8)  # in place of a tenth of a second for each attempt
    path = str(tmp_path / "users.json")
    add_user(path, "ada", "correct horse")
    return path


def test_the_file_holds_hashes_and_is_its_owners_alone(users):
    text = Path(users).read_text()
    assert "correct horse" not in text
    assert stat.S_IMODE(os.stat(users).st_mode) == 0o600
    add_user(users, "bob", "correct horse")
    ada, bob = (read_users(users)[name] for name in ("ada", "bob"))
    assert ada["salt"] != bob["salt"]
    assert ada["hash"] != bob["hash"]


def test_only_the_password_lets_in(users):
    known = read_users(users)
    assert is_password(known, "ada", "correct horse")
    for name, password in (("ada", "correct hors"), ("ada", ""), ("eve", "correct horse"), ("", "")):
        assert not is_password(known, name, password)
    add_user(users, "ada", "another one")
    assert is_password(read_users(users), "ada", "another one")
    assert not is_password(read_users(users), "ada", "correct horse")


def test_bad_names_and_a_short_password_are_refused_and_change_nothing(users):
    for name in ("", "visitor:1", "a b", "../x", "-a", "a" * 65):
        with pytest.raises(InputError, match="the name is"):
            add_user(users, name, "long enough")
    with pytest.raises(InputError, match="the password has 5 characters; expected at least 8"):
        add_user(users, "ada", "short")
    assert is_password(read_users(users), "ada", "correct horse")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": "focus-explorer users 1", "users": {"a": {}}}',
        '{"format": "focus-explorer users 1", "users": {"a": {"salt": "00", "hash": "", "n": 1, "r": 1, "p": 1}}}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_none_is_named(tmp_path, content):
    path = tmp_path / "users.json"
    path.write_text(content)
    with pytest.raises(InputError, match="is no file of users"):
        read_users(str(path))


def test_a_cost_that_takes_all_memory_is_refused(users):
    content = json.loads(Path(users).read_text())
    content["users"]["ada"]["n"] = 2**40
    Path(users).write_text(json.dumps(content))
    with pytest.raises(InputError, match="is no file of users"):
        read_users(users)


def test_the_command_reads_the_password_from_standard_input_and_shows_none(tmp_path, capsys, monkeypatch):
    path = str(tmp_path / "users.json")
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    assert main(["users", "add", "ada", "--file", path]) == 0
    printed = capsys.readouterr()
    assert "correct horse" not in printed.out + printed.err
    assert is_password(read_users(path), "ada", "correct horse")


def test_guessing_is_refused_after_some_attempts(users):
    check = Login(users).check

    async def attempts():
        wrong = [await check("ada", f"guess {number}") for number in range(MOST_ATTEMPTS)]
        return wrong, await check("ada", "correct horse"), await check("bob", "correct horse")

    wrong, right, other = asyncio.run(attempts())
    assert not any(wrong)
    assert not right  # also the right password, for a minute
    assert not other
    assert asyncio.run(Login(users).check("ada", "correct horse"))


def test_a_labs_page_answers_nobody_without_login(stored, users):
    database, run_id, request = stored
    add_user(users, "ada", "correct horse")
    with serving(database, request, users=users) as page:
        answer, problem = page.call("run", run_id)
        assert answer is None
        assert problem.startswith("401")
        assert page.server("fe-runs", "load", []).status_code == 401
        assert page.client.get("/health").status_code == 200
        wrong = page.client.post("/login", data={"username": "ada", "password": "battery staple"})
        assert wrong.status_code == 400
        assert page.client.post("/login", data={"username": "ada", "password": "correct horse"}).status_code == 200
        answer, problem = page.call("run", run_id)
        assert (answer["run_id"], problem) == (run_id, "")
        assert page.other_browser().call("run", run_id)[1].startswith("401")


def test_a_proxy_names_the_user_once_and_the_log_says_what_they_have_changed(stored, caplog):
    database, run_id, request = stored
    with serving(database, request, trusted_header="X-Remote-User") as page:
        for headers in ([], [("X-Remote-User", "")], [("X-Remote-User", "ada"), ("X-Remote-User", "bob")]):
            assert page.client.get("/config", headers=headers).status_code == 401
        page.client.headers["X-Remote-User"] = "ada"
        assert page.call("run", run_id)[0]["run_id"] == run_id
        shown = (request.model, "random", 1, 8, 2, "causal", 0, "auto", "auto", "auto")
        made, _ = page.call("analyze", TEXT, *shown)
        caplog.clear()
        with caplog.at_level(logging.INFO, "focus_explorer"):
            page.server("fe-runs", "remove", {"run": made["run_id"]})
        lines = [json.loads(JSONFormatter().format(record)) for record in caplog.records]
    requests = [line for line in lines if line["event"] == "request"]
    assert requests
    assert {line["user"] for line in requests} == {"ada"}
    assert [line["run"] for line in lines if line["event"] == "run deleted"] == [made["run_id"]]


class UsersPage(Page):
    """The page with one user's cookies; a client of its own for each would make every answer wait for the other."""

    def __init__(self, page, cookies):
        super().__init__(page.blocks, page.client)
        self.cookies = cookies

    def _as_user(self):
        self.client.cookies.clear()
        self.client.cookies.update(self.cookies)

    def call(self, name, *values):
        self._as_user()
        return super().call(name, *values)

    def server(self, component, function, data, **how):
        self._as_user()
        return super().server(component, function, data, **how)


@pytest.fixture
def lab(stored, users, tmp_path):
    """Pages of two users over a database with a run of the command line: (ada's, bob's, that run, database, model)."""
    database = Path(shutil.copy(stored[0], tmp_path / "lab.duckdb"))
    add_user(users, "ada", "correct horse")
    add_user(users, "bob", "staple battery")
    with serving(database, stored[2], users=users) as page:
        users_pages = []
        for name, password in (("ada", "correct horse"), ("bob", "staple battery")):
            page.client.cookies.clear()
            assert page.client.post("/login", data={"username": name, "password": password}).status_code == 200
            users_pages.append(UsersPage(page, dict(page.client.cookies)))
        yield *users_pages, stored[1], database, stored[2].model


def explored(page, model):
    """The run of a short text, made by an API call."""
    answer, problem = page.call("analyze", TEXT, model, "random", 1, 8, 2, "causal", 60, "cpu", "float32", "auto")
    assert problem == ""
    return answer["run_id"]


def owners(database):
    return {row["run_id"]: row["owner"] for row in all_runs(Service(database))}


def names(database):
    return {row["run_id"]: row["name"] for row in all_runs(Service(database))}


def test_a_run_is_changed_by_its_owner_alone_and_nobody_is_somebody_else_by_a_header(lab):
    ada, bob, made_by_command, database, model = lab
    run = explored(ada, model)
    belongs, before = owners(database), names(database)  # another test may have named the run that was there
    assert (belongs[run], belongs[made_by_command]) == ("ada", None)
    assert bob.call("run", run)[0]["run_id"] == run
    for page, whose, of_run in ((bob, "belongs to ada", run), (ada, "was made without a login", made_by_command)):
        for call in (("rename", of_run, "mine now"), ("delete", of_run), ("tag", of_run, "a", "")):
            assert whose in page.call(*call)[1]
        assert whose in page.server("fe-runs", "remove", {"run": of_run}).json()["error"]
    assert names(database) == before
    assert ada.call("rename", run, "hers")[1] == ""
    assert ada.server("fe-runs", "remove", {"run": run}).json() == {"deleted": True}
    assert "belongs to ada" in bob.call("undelete", run)[1]
    assert main(["runs", "rename", made_by_command, "by hand", "--db", str(database)]) == 0
    run = explored(ada, model)
    bob.client.headers[USER_HEADER] = "ada"  # of every request from here on
    assert "belongs to ada" in bob.call("delete", run)[1]
    assert "belongs to ada" in bob.server("fe-runs", "remove", {"run": run}).json()["error"]
    again = explored(bob, model)
    assert owners(database)[again] == "bob"
