"""Other sites and other names of this machine get nothing from the page, on no route (audit finding H1)."""

from __future__ import annotations

import re
import uuid

import pytest

from focus_explorer.web.hosting.modes import Addresses, Hosting
from tests.security.conftest import HERE, serving

OTHER_PORT = "http://127.0.0.1:9999"
FOREIGN = (OTHER_PORT, "http://localhost:7860", "https://evil.example", "null", "file://", "http://127.0.0.1:7860x")


def every_route(routes):
    """(method, address) of every route, with something in place of its parameters."""
    for route in routes:
        if (inside := getattr(route, "original_router", None)) is not None:
            yield from every_route(inside.routes)
            continue
        path = re.sub(r"\{[^}]*\}", lambda _: uuid.uuid4().hex[:6], route.path)
        for method in getattr(route, "methods", None) or ("GET", "POST"):
            yield method, path


def test_every_route_refuses_other_names_and_other_origins(private):
    routes = list(every_route(private.client.app.routes))
    assert len(routes) > 60
    for method, path in routes:
        named = private.client.request(method, path, headers={"host": "evil.example:7860"})
        assert (path, named.status_code) == (path, 421)
        foreign = private.client.request(method, path, headers={"origin": OTHER_PORT})
        assert (path, foreign.status_code) == (path, 403)
        assert "access-control-allow-origin" not in foreign.headers


@pytest.mark.parametrize("origin", FOREIGN)
def test_no_other_site_deletes_a_run_or_runs_sql(private, stored, origin):
    """As a page of another local port did: text/plain needs no preflight."""
    how = {"headers": {"origin": origin, "content-type": "text/plain"}}
    for component, function, data in (
        ("fe-runs", "remove", {"run": stored[1]}),
        ("fe-sql", "query", {"sql": "SELECT 1"}),
        ("fe-training", "stop_training", {}),
    ):
        assert private.server(component, function, data, **how).status_code == 403
    cards = private.server("fe-runs", "load_runs", {}).json()["runs"]
    assert [card["deleted_at"] for card in cards if card["run_id"] == stored[1]] == [None]


def test_without_origin_the_fetch_metadata_decides(private):
    """Browsers leave `Origin` out of images, forms of old ones and navigation."""
    image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert private.client.get("/config", headers=image).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert private.client.get("/", headers=link).status_code == 200
    assert private.client.post("/login", headers=link).status_code == 403


def test_a_preflight_of_another_site_allows_nothing(private):
    answer = private.client.options(
        "/gradio_api/component_server",
        headers={"origin": "http://localhost:3", "access-control-request-method": "POST"},
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_two_hosts_or_none_are_refused(private):
    assert private.client.get("/config", headers=[("host", "127.0.0.1"), ("host", "evil.example")]).status_code == 421
    assert private.client.get("/config", headers={"host": ""}).status_code == 421


@pytest.mark.slow
def test_the_page_itself_and_programs_are_answered(private):
    assert private.client.get("/").status_code == 200
    assert private.server("fe-sql", "query", {"sql": "SELECT 42"}).json()["rows"] == [[42]]
    own = {"headers": {"origin": HERE, "sec-fetch-site": "same-origin"}}
    assert private.server("fe-sql", "query", {"sql": "SELECT 42"}, **own).json()["rows"] == [[42]]
    for host in ("localhost:7860", "127.0.0.1", "[::1]:7860"):
        assert private.client.get("/config", headers={"host": host}).status_code == 200


@pytest.mark.slow
def test_a_name_that_is_allowed_is_answered_and_reflects_no_other_origin(stored):
    with serving(stored[0], stored[2], allow_hosts=("lab.example",)) as page:
        lab = {"host": "lab.example", "origin": "https://lab.example"}
        assert page.client.get("/config", headers=lab).status_code == 200
        behind = {"host": "127.0.0.1:7860", "origin": "https://lab.example"}  # a proxy that sets Host itself
        assert page.client.get("/config", headers=behind).status_code == 200
        for other in ("https://evil.example", "https://lab.example:444", "https://lab.example.evil.example"):
            answer = page.client.get("/config", headers={"host": "lab.example", "origin": other})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


def test_no_other_site_shows_the_page_in_a_frame(private):
    for answer in (private.client.get("/"), private.client.get("/config", headers={"host": "evil.example"})):
        assert answer.headers.get_list("content-security-policy") == ["frame-ancestors 'self'"]


def test_a_websocket_of_another_site_is_closed(private):
    from starlette.websockets import WebSocketDisconnect

    with (
        pytest.raises(WebSocketDisconnect) as closed,
        private.client.websocket_connect("/queue/join", headers={"origin": OTHER_PORT}),
    ):
        pass
    assert closed.value.code == 1008


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("192.168.1.7:7860", True),  # a rebound name is never an IP address
        ("[fe80::1]", True),
        ("evil.example", False),
        ("1.2.3.4.evil.example", False),
        ("127.0.0.1.nip.example", False),
        ("localhost.evil.example", False),
    ],
)
def test_on_all_addresses_the_page_answers_to_addresses(host, answered):
    assert Addresses("0.0.0.0").answers_to(host) is answered
    assert not Addresses("127.0.0.1").answers_to(host)


@pytest.mark.parametrize("name", ["", "*", "a b", "http://lab.example", "lab.example/x"])
def test_an_allowed_name_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="--allow-host"):
        Hosting(allow_hosts=(name,))
