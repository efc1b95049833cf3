"""The style sheets as a whole: folders, order, one file per class, no unused class, no literal where a token is due."""

from __future__ import annotations

import re

from focus_explorer.settings import asset_path
from focus_explorer.web.browser import host_style, stylesheets

ROOT = asset_path("css")
TOKENS = ROOT / "core" / "tokens.css"
LITERAL_COLOUR = re.compile(r"#[0-9a-f]{3,8}\b|\b(rgb|rgba|hsl|hsla|hwb|lab|lch|oklab|oklch|color)\(")
COLOURED = re.compile(r"color|[a-z]+-color|background|border(-[a-z]+)?|outline|fill|stroke|box-shadow|text-decoration")
WORDS = {"currentcolor", "dashed", "dotted", "double", "in", "inherit", "inset", "none", "solid", "srgb", "transparent"}
WORDS |= {"collapse", "important", "overline", "underline"}


def text_of(path):
    """A style sheet without its comments."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def rules():
    """(file name, selector) of every rule, one selector each."""
    for path in stylesheets():
        for selectors in re.findall(r"([^{};]+)\{", text_of(path)):
            if not selectors.strip().startswith("@"):
                for selector in re.split(r",(?![^(]*\))", selectors):
                    yield name_of(path), " ".join(selector.split())


def declarations():
    """(file name, property, value) of every declaration outside the tokens."""
    for path in stylesheets():
        if path != TOKENS:
            for name, value in re.findall(r"(?<=[{;])\s*([\w-]+)\s*:\s*([^;{}]+)(?=[;}])", text_of(path)):
                yield name_of(path), name, " ".join(value.split())


def scripts_text():
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(asset_path("js").rglob("*.js")))


def test_every_styled_class_is_used():
    code = scripts_text()
    styled = {class_name for _, selector in rules() for class_name in re.findall(r"\.(fx-[\w-]+)", selector)}
    made = set(re.findall(r"fx-[\w-]*\$\{", code))  # names put together at run time, by their beginning
    begins = tuple({name.removesuffix("${") for name in made} - {"fx-"})
    assert {
        name for name in styled if not re.search(rf"{name}(?![\w-])", code) and not name.startswith(begins)
    } == set()


def test_order_of_the_cascade():
    """The tokens, core, shell, then the views: at equal weight a view wins over what it shares with others."""
    names = [name_of(path) for path in stylesheets()]
    assert names[0] == "core/tokens.css"
    kinds = [{"core": 0, "shell": 1}.get(name.split("/")[0], 2) for name in names]
    assert kinds == sorted(kinds)
    assert len(names) == len(set(names)) == len(list(ROOT.rglob("*.css")))
    assert host_style() in stylesheets()


def test_colours_are_tokens():
    """No hex, no colour function, and no word that could name a colour."""
    coloured = [declaration for declaration in declarations() if COLOURED.fullmatch(declaration[1])]
    assert len(coloured) > 300
    assert [declaration for declaration in declarations() if LITERAL_COLOUR.search(declaration[2].lower())] == []
    words = {
        declaration: set(re.findall(r"(?<![\w-])[a-z]+(?![\w(-])", declaration[2].lower())) - WORDS
        for declaration in coloured
    }
    assert {declaration: unknown for declaration, unknown in words.items() if unknown} == {}


def test_every_token_is_defined_in_one_place_and_used():
    """Names that a rule or a script sets for itself, such as the tint of a group, are no tokens."""
    names = re.findall(r"(--f[xe]-[\w-]+):", "\n".join(text_of(path) for path in stylesheets() if path != TOKENS))
    code = scripts_text()
    own = set(names) | set(re.findall(r"--f[xe]-[\w-]+", code))
    tokens = set(re.findall(r"(--f[xe]-[\w-]+):", text_of(TOKENS)))
    used = set(re.findall(r"var\((--f[xe]-[\w-]+)", "\n".join(text_of(path) for path in stylesheets())))
    assert len(tokens) > 100
    assert tokens & own == set()
    assert used - tokens - own == set()
    in_scripts = {name for name in tokens if f'"{name.removeprefix("--fx-")}"' in code}
    assert tokens - used - in_scripts == set()
