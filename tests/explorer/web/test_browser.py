"""The scripts and styles that the page and a saved run take, linked into one file, and which files browsers keep."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from focus_explorer.settings import asset_path
from focus_explorer.web.browser import background, link, modules, notebook_script, page_script, stylesheets
from focus_explorer.web.hosting.guard import FOR_A_YEAR, AroundGradio
from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.rule import CAUSES, PairRule


def test_the_background_is_the_token_of_the_theme():
    tokens = stylesheets()[0].read_text(encoding="utf-8")
    assert tokens.count(f"--fx-bg: {background(dark=False)};") == 1
    assert tokens.count(f"--fx-bg: {background(dark=True)};") == 1
    assert tokens.index(background(dark=False)) < tokens.index(".dark .fx-root") < tokens.index(background(dark=True))


def answer(request):
    return PlainTextResponse("content", status_code=404 if "missing" in request.url.path else 200)


CLIENT = TestClient(AroundGradio(Starlette(routes=[Route("/{path:path}", answer)])))


@pytest.mark.parametrize(
    "path",
    [
        "/assets/index-DphvyggB.js",
        "/assets/Index-Akn07EZk2.css",
        "/focus/assets/src-1GSBhSW9.js",
        "/gradio_api/file=/tmp/x/explorer-61cd121870a5.css",
    ],
)
def test_named_by_content(path):
    assert CLIENT.get(path).headers["cache-control"] == FOR_A_YEAR


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", "/static/js/x.js", "/assets/missing-DphvyggB.js", "/gradio_api/file=/tmp/run-1.csv"],
)
def test_everything_else(path):
    assert "cache-control" not in CLIENT.get(path).headers


ROOT = asset_path("js")
SCRIPTS = sorted(ROOT.rglob("*.js"))


@pytest.fixture
def write(tmp_path):
    """Writes modules given as {name: text}; returns the path of main.js."""

    def write_all(**files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".js")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path / "main.js"

    return write_all


def node(*arguments, **how):
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node is not installed")
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, **how).stdout


def test_a_linked_script_runs_with_names_of_its_own_in_every_module(write):
    entry = write(
        main="""// export default 1; import "x"
import { twice as double, Box, count } from "./parts/one.js";
import {
  late,
} from "./parts/two.js";
const hidden = 1;
const quoted = `
  export { ${hidden} } import`;
export const value = [double(21), new Box(7).held, late(), count, hidden, quoted.trim()];
export async function* later() { await null; }
""",
        parts__one="""import { late } from "./two.js";
const hidden = 2;
export const count = hidden;
export function twice(x) { return x * hidden; }
export class Box { constructor(held) { this.held = held + late(); } export() { return import_; } }
const import_ = null;
""",
        parts__two="const hidden = 3;\nexport const late = () => hidden;\n",
    )
    assert [module.path.name for module in modules(entry)] == ["two.js", "one.js", "main.js"]
    script = link(entry)
    assert script.count("// parts/two.js") == 1
    shown = node("-e", f"console.log(JSON.stringify({script.rstrip().rstrip(';')}))")
    assert json.loads(shown) == {"value": [42, 10, 3, 2, 1, "export { 1 } import"]}


def test_every_module_of_ours_belongs_to_the_page_and_the_notebook_has_the_views_alone():
    def names(entry):
        return {module.path.relative_to(ROOT.resolve()).as_posix() for module in modules(ROOT / entry)}

    page, notebook = names("main.js"), names("notebook.js")
    assert page | {"notebook.js"} == {path.relative_to(ROOT).as_posix() for path in SCRIPTS}
    assert notebook - {"notebook.js"} < page
    folders = {name.split("/")[0] for name in notebook} - {"notebook.js"}
    views = {"tokens", "groups", "map", "sparsity", "compare", "statistics"}
    assert folders == {"core", "strings", "shell", *views}
    assert not {"shell/keys.js", "shell/tour.js"} & notebook


def test_no_module_makes_a_global_and_each_is_checked_by_types():
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("// @ts-check\n"), path
        assert "window.FX" not in text, path
        assert ("Object.assign(window" in text) == (path.name in ("main.js", "notebook.js")), path
        assert not path.stem.startswith(path.parent.name), f"{path} repeats its folder"


def test_the_linked_scripts_parse():
    for text in (page_script(), notebook_script()):
        node("--check", "-", input=text)


CAUSES_OF_ROWS = """
  const sets = member.map((text) => BigInt(text));
  const shareGroup = (_, a, b) => (sets[a] & sets[b]) !== 0n;
  const layers = [{ sliding_window: sliding, parts: [{ window }] }];
  const run = { numTokens: member.length, config: { num_sinks: sinks }, layers, shareGroup };
  const links = member.map((_, pos) => new Links(run, 0, pos, 0));
  const total = (way, cause) => links.reduce((sum, one) => sum + one[way](cause).length, 0);
  console.log(JSON.stringify(names.map((cause) => ["back", "forward"].map((way) => total(way, cause)))));
"""


@pytest.mark.parametrize("sliding", [None, 20, 5])
def test_the_causes_of_all_rows_add_up_to_the_counted_mask(sliding):
    """The browser's rule, summed over every token of random memberships, against the runtime's counts by cause."""
    count, rule = 90, PairRule(7, 3, sliding)
    member = np.random.default_rng(5).integers(1, 2**40, count) & np.random.default_rng(6).integers(1, 2**40, count)
    values = [[str(value) for value in member], rule.window, rule.num_sinks, sliding, CAUSES[:-1]]
    given = f"const [member, window, sinks, sliding, names] = {json.dumps(values)};"
    totals = json.loads(
        node("-e", f"const {{ Links }} = {link(ROOT / 'tokens/links.js', ROOT)}{given}{CAUSES_OF_ROWS}")
    )
    counts = count_pairs(member, rule)
    for cause, (back, forward) in zip(CAUSES[:-1], totals, strict=True):
        if cause not in ("local_only", "local_and_group"):  # a token of no group meets itself only by being near
            assert back == forward == counts.total(cause)
    near = sum(counts.total(cause) for cause in ("local_only", "local_and_group"))
    assert totals[0][0] + totals[2][0] == near
    assert totals[0][1] + totals[2][1] == near - count
