"""How far a page may reach: what `serve` refuses before anything is built or served."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError
from focus_explorer.usecases.users import add_user
from focus_explorer.web.hosting.modes import Hosting


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "lab.example"])
def test_a_private_page_beyond_this_machine_is_refused_with_what_to_do(host, capsys, tmp_path):
    assert main(["serve", "--host", host, "--db", str(tmp_path / "x.duckdb")]) == 2
    line = capsys.readouterr().err
    assert f"serving on {host} would let everyone who reaches it delete runs" in line
    assert all(option in line for option in ("--auth FILE", "--insecure"))
    assert not (tmp_path / "x.duckdb").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_private_page_of_this_machine_is_served(host):
    Hosting(host=host)


def test_beyond_this_machine_with_login_or_on_purpose(tmp_path):
    users = str(tmp_path / "users.json")
    add_user(users, "ada", "correct horse")
    for how in ({"users": users}, {"insecure": True}, {"public": True}):
        Hosting(host="0.0.0.0", **how)


def test_a_header_that_anyone_could_send_is_refused():
    Hosting(trusted_header="X-Remote-User")
    Hosting(host="0.0.0.0", trusted_header="X-Remote-User", insecure=True)
    with pytest.raises(InputError, match="could send the header X-Remote-User and be anyone"):
        Hosting(host="0.0.0.0", trusted_header="X-Remote-User")


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"users": "u.json", "trusted_header": "X-User"}, "--auth and --trusted-header together"),
        ({"trusted_header": "X User"}, "--trusted-header is 'X User'"),
        ({"users": "/nowhere/users.json"}, "focus-explorer users add NAME --file /nowhere/users.json"),
        ({"root_path": "focus"}, "--root-path is 'focus'"),
        ({"allow_frames": ("https://lab.example",)}, "--allow-frame without --public"),
        ({"allow_frames": ("*",), "public": True}, "--allow-frame is '*'"),
        ({"allow_frames": ("https://a.example; x",), "public": True}, "--allow-frame is 'https://a.example; x'"),
        ({"trusted_header": "X-User", "mcp": True}, "--mcp on a lab's page: its clients cannot log in"),
        ({"models": ("other",)}, "--allow-model without --public"),
        ({"public": True, "mcp": True}, "--public and --mcp together"),
        ({"public": True, "users": "u.json"}, "--public and --auth together"),
        ({"public": True, "insecure": True}, "--public and --insecure together"),
        ({"public": True, "allow_paths": ("/tmp",)}, "--public and --allow-path together"),
        ({"public": True, "visitors": {"tokens": 0}}, "--visitor-tokens is 0"),
        ({"public": True, "visitors": {"hours": -1}}, "--visitor-hours is -1"),
        ({"public": True, "address_header": "a b"}, "--address-header is 'a b'"),
        ({"job_minutes": 0}, "--job-minutes is 0"),
        ({"allow_paths": ("/nowhere",)}, "--allow-path /nowhere is no folder"),
    ],
)
def test_options_that_contradict_each_other_are_refused(how, part):
    with pytest.raises(InputError) as refused:
        Hosting(**how)
    assert part in str(refused.value)
