"""The linker that makes one script of the modules in assets/js."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from focus_explorer.assets import asset_path
from focus_explorer.web.browser import notebook_script, page_script, scripts
from focus_explorer.web.scripts import LinkError, link, modules, read_module


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


def run_script(text):
    """The exports of a linked script as JSON, by Node where there is one."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    command = [node, "-e", f"console.log(JSON.stringify({text.rstrip().rstrip(';')}))"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_modules_come_after_those_they_import_and_each_once(write):
    entry = write(
        main='import { b } from "./b.js";\nimport { a } from "./a.js";\nexport const all = [a, b];\n',
        a='export const a = "a";\n',
        b='import { a } from "./a.js";\nexport const b = a + "b";\n',
    )
    assert [module.path.name for module in modules(entry)] == ["a.js", "b.js", "main.js"]
    script = link(entry)
    assert script.count("// a.js") == 1
    assert script.index("// a.js") < script.index("// b.js") < script.index("// main.js")


def test_a_linked_script_runs_with_names_of_its_own_in_every_module(write):
    entry = write(
        main="""import { twice as double, Box, count } from "./parts/one.js";
import {
  late,
} from "./parts/two.js";
const hidden = 1;
export const value = [double(21), new Box(7).held, late(), count, hidden];
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
    assert run_script(link(entry)) == {"value": [42, 10, 3, 2, 1]}


def test_words_in_comments_strings_templates_and_patterns_are_no_statements(write):
    entry = write(
        main=r"""// export default 1; import "x"
/* await 1
import { y } from "./y.js"; */
const ratio = (8 / 2) / 2;
const quoted = "await `import('x')`" + 'it\'s';
const nested = `export { ${["}", `${ratio} \`await\``].join("{")} }`;
const patterns = [/[/"'`]+export/.test('/"'), /\/\*/.source, "a b".split(/ /).length, 8 / 2 / 1];
const named = { import: 1, export: 2, await: 3 };
export const values = [ratio, quoted, nested, patterns, named.import, named.export, named.await];
"""
    )
    assert run_script(link(entry))["values"] == [
        2,
        "await `import('x')`it's",
        "export { }{2 `await` }",
        [False, "\\/\\*", 2, 4],
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("\nexport default 1;\n", 2, "only `export const`"),
        ("export let a = 1;\n", 1, "only `export const`"),
        ("const a = 1;\nexport { a };\n", 2, "only `export const`"),
        ('export * from "./other.js";\n', 1, "only `export const`"),
        ("export const a = 1, b = 2;\n", 1, "one name a statement"),
        ("export const { a } = {};\n", 1, "needs one name"),
        ("export const a = 1;\n\nexport function a() {}\n", 3, "exported twice"),
        ('import "./other.js";\n', 1, "only `import { names }"),
        ('import other from "./other.js";\n', 1, "only `import { names }"),
        ('import * as other from "./other.js";\n', 1, "only `import { names }"),
        ('import { default as other } from "./other.js";\n', 1, "needs names"),
        ('const f = () => import("./other.js");\n', 1, "only `import { names }"),
        ("const f = () => {\n  return import.meta.url;\n};\n", 2, "only `import { names }"),
        ("const a = 1;\nconst b = await a;\n", 2, "await outside"),
        ('import { other } from "other";\n', 1, "relative path"),
        ('\nimport { other } from "./none.js";\n', 2, "there is no file"),
        ('import { other } from "./other.js"\nimport { other } from "./other.js"\n', 2, "expected ';'"),
        ('\nimport { another } from "./other.js";\n', 2, "other.js exports no another"),
        ("const a = [1];\n}\n", 2, "closes nothing"),
        ("const a = `b${1}`;\nconst c = `d;\n", 2, "not closed"),
    ],
)
def test_anything_else_is_an_error_with_file_and_line(write, text, line, problem):
    entry = write(main=text, other="export const other = 1;\n")
    with pytest.raises(LinkError) as caught:
        link(entry)
    assert str(caught.value).startswith(f"{entry}:{line}: ")
    assert problem in str(caught.value)


def test_a_file_that_ends_too_early_or_is_not_there_is_an_error(write, tmp_path):
    for text in ("const a = (1;", "export", "import { a", "export const a = {\n"):
        with pytest.raises(LinkError, match=r"main\.js"):
            link(write(main=text))
    with pytest.raises(LinkError, match=r"none\.js: No such file"):
        link(tmp_path / "none.js")


def test_a_cycle_is_an_error_that_names_it(write):
    entry = write(
        main='import { a } from "./a.js";\n',
        a='import { b } from "./b.js";\nexport const a = 1;\n',
        b='import { a } from "./a.js";\nexport const b = 1;\n',
    )
    with pytest.raises(LinkError, match=r"import cycle: a\.js → b\.js → a\.js"):
        link(entry)


def test_a_changed_file_is_read_again(write):
    entry = write(main="export const a = 1;\n")
    assert read_module(entry).exports == ("a",)
    entry.write_text("export const changed = 1;\n", encoding="utf-8")
    assert read_module(entry).exports == ("changed",)


def test_every_module_of_ours_belongs_to_the_page_and_the_notebook_has_the_views_alone():
    root = asset_path("js")

    def names(entry):
        return {module.path.relative_to(root.resolve()).as_posix() for module in modules(root / entry)}

    page, notebook = names("main.js"), names("notebook.js")
    assert page | {"notebook.js"} == {path.relative_to(root).as_posix() for path in scripts()}
    assert notebook - {"notebook.js"} < page
    folders = {name.split("/")[0] for name in notebook} - {"notebook.js"}
    assert folders == {
        "core",
        "strings",
        "shell",
        "tokens",
        "groups",
        "map",
        "sparsity",
        "compare",
        "statistics",
    }
    assert not {"shell/keys.js", "shell/tour.js"} & notebook


def test_no_module_makes_a_global_and_each_is_checked_by_types():
    for path in scripts():
        text = path.read_text(encoding="utf-8")
        assert text.startswith("// @ts-check\n"), path
        assert "window.FX" not in text, path
        assert ("Object.assign(window" in text) == (path.name in ("main.js", "notebook.js")), path


def test_the_linked_scripts_parse():
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    for text in (page_script(), notebook_script()):
        subprocess.run([node, "--check", "-"], input=text, text=True, check=True)


def test_a_file_carries_no_prefix_that_repeats_its_folder():
    assert [path for path in scripts() if path.stem.startswith(path.parent.name)] == []
