"""Links the ES modules of assets/js into the one classic script that a page loads.

The linker follows the static imports of an entry, orders the modules so that each comes after those it imports, and
wraps each in a function, so that names of two modules cannot collide. It reads exactly the subset of the syntax that
assets/js uses: named imports with a relative path, and `export` in front of a `const`, `function` or `class`. All else
is an error with file and line. Node is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

# Alternatives in the order in which they are tried. A slash that follows a value divides; any other begins a pattern.
_TOKEN = re.compile(
    r"""(?P<space>(?:\s+|//[^\n]*|/\*.*?\*/)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<pattern>/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*)
    |(?P<open>[\[({])
    |(?P<close>[\])}])
    |(?P<template>`)
    |(?P<other>[^\s\w$"'`/\[\](){}.;,:]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_TEMPLATE_PART = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(?P<end>`|\$\{)", re.DOTALL)
_BEFORE_PATTERN = {"return", "typeof", "case", "of", "in", "do", "else", "void", "delete", "await", "yield", "new"}
_DECLARATIONS = {"const", "function", "class", "async"}


class LinkError(ValueError):
    """A module that the linker cannot read."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    depth: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: the imported file, its names as (exported, local), and its line."""

    path: Path
    names: tuple[tuple[str, str], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """One module: its imports, its exported names, and its code without `import` and `export`."""

    path: Path
    imports: tuple[Import, ...]
    exports: tuple[str, ...]
    code: str


def link(entry: Path, root: Path | None = None) -> str:
    """One classic script of an entry and all modules that it imports, as a function call whose value is its exports.

    Args:
        entry: the module to begin with.
        root: folder that module names are relative to; the entry's own folder when None.

    Raises:
        LinkError: syntax outside the subset, an unknown file or name, or an import cycle.
    """
    root = entry.parent if root is None else root
    parts = [_wrapped(module, root) for module in modules(entry)]
    names = "\n".join(["(() => {", '"use strict";', "const modules = {};", *parts])
    return f"{names}\nreturn modules[{_name(entry.resolve(), root)}];\n}})();\n"


def modules(entry: Path) -> list[Module]:
    """The modules of an entry, each after those that it imports.

    Raises:
        LinkError: as of `link`.
    """
    ordered: dict[Path, Module] = {}
    open_paths: list[Path] = []

    def visit(path: Path) -> None:
        if path in open_paths:
            names = " → ".join(step.name for step in [*open_paths[open_paths.index(path) :], path])
            raise LinkError(f"{open_paths[-1]}: import cycle: {names}")
        open_paths.append(path)
        module = read_module(path)
        for imported in module.imports:
            if imported.path not in ordered:
                visit(imported.path)
            _check_names(module, imported, ordered[imported.path])
        ordered[open_paths.pop()] = module

    visit(entry.resolve())
    return list(ordered.values())


def _check_names(module: Module, imported: Import, target: Module) -> None:
    for name, _ in imported.names:
        if name not in target.exports:
            raise LinkError(f"{module.path}:{imported.line}: {imported.path.name} exports no {name}")


def _wrapped(module: Module, root: Path) -> str:
    lines = [f"// {_name(module.path, root)[1:-1]}", f"modules[{_name(module.path, root)}] = (() => {{"]
    for imported in module.imports:
        names = ", ".join(name if name == local else f"{name}: {local}" for name, local in imported.names)
        lines.append(f"const {{ {names} }} = modules[{_name(imported.path, root)}];")
    return "\n".join([*lines, module.code.strip("\n"), f"return {{ {', '.join(module.exports)} }};", "})();"])


def _name(path: Path, root: Path) -> str:
    return f'"{path.relative_to(root.resolve()).as_posix()}"'


def read_module(path: Path) -> Module:
    """Read one file.

    Raises:
        LinkError: syntax outside the subset, or an import of a file that does not exist.
    """
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise LinkError(f"{path}: {error.strerror}") from error


@cache
def _parsed(path: Path, _changed: int) -> Module:
    return _Reader(path, path.read_text(encoding="utf-8")).module()


@dataclass(slots=True)
class _Reader:
    path: Path
    text: str
    at: int = 0
    tokens: list[_Token] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    cuts: list[tuple[int, int]] = field(default_factory=list)

    def module(self) -> Module:
        self.tokens = [token for token in _tokens(self) if token.kind != "space"]
        while self.at < len(self.tokens):
            self.statement()
        code, last = [], 0
        for start, end in self.cuts:
            code.append(self.text[last:start])
            last = end
        return Module(self.path, tuple(self.imports), tuple(self.exports), "".join([*code, self.text[last:]]))

    def statement(self) -> None:
        token = self.take()
        member = self.at > 1 and self.tokens[self.at - 2].text == "."
        if token.kind != "name" or member or self.peek() == ":":
            return
        if token.text == "import":
            self.read_import(token)
        elif token.text == "export" and token.depth == 0:
            self.read_export(token)
        elif token.text == "await" and token.depth == 0:
            raise self.error(token, "await outside a function")

    def read_import(self, start: _Token) -> None:
        if start.depth > 0 or self.peek() != "{":
            raise self.error(start, 'only `import { names } from "./file.js"` is read')
        names = self.names()
        self.expect("from")
        source = self.take()
        if source.kind != "string" or not source.text[1:-1].startswith("."):
            raise self.error(source, "the imported file must be a relative path")
        path = (self.path.parent / source.text[1:-1]).resolve()
        if not path.is_file():
            raise self.error(source, f"there is no file {source.text[1:-1]}")
        self.expect(";")
        self.imports.append(Import(path, tuple(names), self.line(start)))
        self.cuts.append((start.start, self.tokens[self.at - 1].end))

    def read_export(self, start: _Token) -> None:
        if self.peek() not in _DECLARATIONS:
            raise self.error(start, "only `export const`, `export function` and `export class` are read")
        self.cuts.append((start.start, self.tokens[self.at].start))
        word = self.take().text
        while word in ("async", "function", "*"):
            word = self.take().text
        name = self.take() if word in ("const", "class") else self.tokens[self.at - 1]
        if name.kind != "name":
            raise self.error(name, "an export needs one name")
        if word == "const" and self.several(name):
            raise self.error(name, "export one name a statement")
        if name.text in self.exports:
            raise self.error(name, f"{name.text} is exported twice")
        self.exports.append(name.text)

    def several(self, name: _Token) -> bool:
        """Whether a declaration continues after its first value."""
        for token in self.tokens[self.at :]:
            if token.depth == name.depth and token.text in (",", ";"):
                return token.text == ","
        return False

    def names(self) -> list[tuple[str, str]]:
        names = []
        self.expect("{")
        while self.peek() != "}":
            name = local = self.take()
            if self.peek() == "as":
                self.take()
                local = self.take()
            if name.kind != "name" or local.kind != "name" or "default" in (name.text, local.text):
                raise self.error(name, "an import needs names")
            names.append((name.text, local.text))
            if self.peek() != "}":
                self.expect(",")
        self.expect("}")
        return names

    def peek(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self) -> _Token:
        if self.at == len(self.tokens):
            raise LinkError(f"{self.path}: the file ends inside a statement")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, text: str) -> None:
        token = self.take()
        if token.text != text:
            raise self.error(token, f"expected {text!r}, got {token.text!r}")

    def line(self, token: _Token) -> int:
        return self.text.count("\n", 0, token.start) + 1

    def error(self, token: _Token, message: str) -> LinkError:
        return LinkError(f"{self.path}:{self.line(token)}: {message}")


def _tokens(reader: _Reader) -> Iterator[_Token]:
    """All tokens; those inside `${…}` of a template are tokens too, the template's own text is not."""
    text, at = reader.text, 0
    brackets: list[str] = []
    previous = _Token("other", "", 0, 0)
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative matches any character
        kind = str(match.lastgroup)
        if kind == "pattern" and not _pattern_may_follow(previous):
            kind, token = "other", _Token("other", "/", at, len(brackets))
        else:
            token = _Token(kind, match[0], at, len(brackets) - (kind == "close"))
        at = token.end
        if kind == "open":
            brackets.append(token.text)
        elif kind == "close":
            if not brackets:
                raise reader.error(token, f"{token.text} closes nothing")
            if brackets.pop() == "${":
                at = _after_template_part(reader, token, at, brackets)
        elif kind == "template":
            at = _after_template_part(reader, token, at, brackets)
        yield token
        if kind != "space":
            previous = token
    if brackets:
        raise LinkError(f"{reader.path}: {brackets[-1]} is not closed")


def _after_template_part(reader: _Reader, token: _Token, at: int, brackets: list[str]) -> int:
    """The position after a template's text, which ends with the template or with the next `${`."""
    part = _TEMPLATE_PART.match(reader.text, at)
    if part is None:
        raise reader.error(token, "the template is not closed")
    if part["end"] == "${":
        brackets.append("${")
    return part.end()


def _pattern_may_follow(token: _Token) -> bool:
    if token.kind == "name":
        return token.text in _BEFORE_PATTERN
    return token.kind not in ("number", "string", "close", "template", "pattern")
