"""Every place of the page a person can be at, for checks and pictures that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

DRAWN = 60_000


def _tab(name: str) -> Callable[[Any], None]:
    def click(page: Any) -> None:
        page.get_by_role("tab", name=name, exact=True).click()

    return click


def _press(selector: str) -> Callable[[Any], None]:
    def press(page: Any) -> None:
        page.locator(selector).first.click()

    return press


@dataclass(frozen=True, slots=True)
class Place:
    """A name, the link that leads there, what to do on the page, and what is there once it is drawn."""

    name: str
    ready: str
    query: str = ""
    go: Callable[[Any], None] | None = None

    @property
    def page(self) -> str:
        """What places must share to be reached from each other without a new page."""
        parameters = {name: values for name, values in parse_qs(self.query).items() if name not in ("part", "layer")}
        return str(parameters)

    def visit(self, page: Any) -> None:
        """Do what leads here on an open page, and wait until it is drawn."""
        if self.go is not None:
            self.go(page)
        page.locator(self.ready).first.wait_for(timeout=DRAWN)
        page.wait_for_timeout(200)

    def move(self, page: Any) -> None:
        """Visit from another place with the same `page`, by what a person would press."""
        page.keyboard.press("Escape")  # closes a dialog
        page.locator("#fe-tabs [role=tab]").first.click()
        for part in parse_qs(self.query).get("part", ()):
            page.locator(f".fx-panel:not([hidden]) .fx-choice input[value={part}]").first.check(force=True)
        page.mouse.move(0, 0)
        self.visit(page)


PLACES = (
    Place("tokens", "[data-testid=fx-tokens] .fx-token", "view=tokens&layer=9"),
    Place("token", "[data-testid=fx-detail]", "view=tokens&layer=9&sel=t1i"),
    Place("groups", "[data-testid=fx-group-cards] .fx-group-card", "view=groups&layer=9"),
    Place("finder", "[data-testid=fx-finder] tbody tr", "view=groups&part=finder&layer=9"),
    Place("layers", "[data-testid=fx-agreement] .main-svg", "view=groups&part=layers&layer=9"),
    Place("map", "[data-testid=fx-map] .main-svg", "view=map&layer=9"),
    Place("sparsity", "[data-testid=fx-mask] .main-svg", "view=sparsity&layer=9"),
    Place("compare", "[data-testid=fx-loss-chart] .main-svg", "view=compare"),
    Place("settings", "[data-testid=fx-compare-settings] .fx-button", "view=compare&part=settings"),
    Place("runs-compared", "[data-testid=fx-compare-runs]", "view=compare&part=runs"),
    Place("lengths", "[data-testid=fx-compare-lengths] .fx-button", "view=compare&part=lengths"),
    Place("links", "[data-testid=fx-compare-links] .fx-button", "view=compare&part=links&why=20"),
    Place("heads", "[data-testid=fx-compare-heads] .fx-button", "view=compare&part=heads"),
    Place("what-if", "[data-testid=fx-compare-what-if] .fx-button", "view=compare&part=whatIf"),
    Place("generation", "[data-testid=fx-compare-generation] .fx-button", "view=compare&part=generation"),
    Place("statistics", "[data-testid=fx-stat-run] tbody tr", "view=statistics"),
    Place("statistics-layers", "[data-testid=fx-stat-layers] .main-svg", "view=statistics&part=layers&layer=9"),
    Place("statistics-groups", "[data-testid=fx-stat-groups] .fx-group-card", "view=statistics&part=groups&layer=9"),
    Place("statistics-distances", ".fx-panel .js-plotly-plot:visible", "view=statistics&part=distances&layer=9"),
    Place("export", "[data-testid=fx-export-command]:not(:empty)", go=_press("[data-testid=fx-export-open]")),
    Place("training", "#fe-train-start", go=_tab("Training")),
    Place("centroids", "[data-testid=fx-file-inspect]", go=_tab("Centroids")),
    Place("runs", "[data-testid=fx-runs-list] a", go=_tab("Runs")),
    Place("keyboard", "[data-testid=fx-keys]", go=_press("[data-testid=fx-keys-open]")),
    Place("tour", "[data-testid=fx-tour]", "tour=on"),
)
