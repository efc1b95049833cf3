"""What printed figures share: sizes, fonts and colours set beforehand, axes, lines with bands, matrices of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from focus_explorer.words import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

PX_PER_MM, PX_PER_PT = 96 / 25.4, 96 / 72
SANS = "Arial, Liberation Sans, Helvetica, sans-serif"
SERIF = "Times New Roman, Liberation Serif, Nimbus Roman, serif"

INK, SOFT, GRID = "#1a1a1a", "#767676", "#dddddd"
# Okabe and Ito's hues as on the page, in an order in which neighbours also differ in lightness.
FULL, FOCUS = "#3d4550", "#0068ab"
SHUFFLED, RANDOM, WINDOW = "#c77e00", "#b03a80", "#00805c"
GROUPS = ("#0068ab", "#c77e00", "#00805c", "#b03a80", "#3399d4", "#b83d00", "#3d3900", "#3d4550")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
# Steps of one hue from light to dark; lightness alone carries the value.
SEQUENTIAL = ("#f4f7fb", "#d5e3f0", "#aecbe3", "#7fadd3", "#4f8bbd", "#286aa3", "#0d4a80", "#042b54")


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """The size and type of a figure at its final place."""

    about: str  # where it fits
    width: float
    height: float
    family: str = SANS  # font families as in CSS, the first one that is installed is used
    size: float = 8.0  # points, of axis titles
    small: float = 7.0  # points, of everything else

    @property
    def width_px(self) -> int:
        return round(self.width * PX_PER_MM)

    @property
    def height_px(self) -> int:
        return round(self.height * PX_PER_MM)

    def points(self, size: float) -> float:
        """CSS pixels of so many points."""
        return size * PX_PER_PT

    def scaled(self, ratio: float) -> float:
        """CSS pixels of a length that is `ratio` points at 8-point type."""
        return ratio * PX_PER_PT * self.size / 8


PRESETS: dict[str, Preset] = {
    "column": Preset(about="one column of most two-column papers, 3.25 in", width=82.55, height=58),
    "double": Preset(about="both columns of most two-column papers, 6.75 in", width=171.45, height=76),
    "neurips": Preset(about="text width of NeurIPS and ICLR, 5.5 in", width=139.7, height=70, family=SERIF),
    "icml": Preset(about="one column of ICML, 3.25 in", width=82.55, height=58, family=SERIF),
    "icml-wide": Preset(about="both columns of ICML, 6.75 in", width=171.45, height=76, family=SERIF),
    "acl": Preset(about="one column of ACL, 7.7 cm", width=77, height=56, family=SERIF),
    "acl-wide": Preset(about="both columns of ACL, 16 cm", width=160, height=76, family=SERIF),
    "ieee": Preset(about="one column of IEEE, 3.5 in", width=88.9, height=60, family=SERIF),
    "slide": Preset(about="a 16:9 slide 10 in wide", width=254, height=142.9, size=20, small=17),
}
SCREEN = Preset(about="a web page; HTML has always this size", width=238, height=126, size=11, small=10)


def group_mark(group: int) -> dict[str, Any]:
    """Colour and shape of a group's points; together they differ for 64 groups."""
    return {"color": GROUPS[group % len(GROUPS)], "symbol": SYMBOLS[(group + group // len(GROUPS)) % len(SYMBOLS)]}


def axis(preset: Preset, title: str, **more: Any) -> dict[str, Any]:
    """Settings of one axis: a line, outside ticks, a title."""
    return {
        "title": {"text": title, "font": {"size": preset.points(preset.size)}, "standoff": preset.scaled(4)},
        "showline": True,
        "linecolor": INK,
        "linewidth": preset.scaled(0.6),
        "ticks": "outside",
        "ticklen": preset.scaled(2.5),
        "tickwidth": preset.scaled(0.6),
        "tickcolor": INK,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": preset.points(preset.small)},
    } | more


def mark(preset: Preset, colour: str, symbol: str, size: float, *, fill: str = "", edge: float = 1.0) -> dict[str, Any]:
    """Plotly's `marker`: a symbol with an outline, `size` and `edge` in points at 8-point type."""
    line = {"color": colour, "width": preset.scaled(edge)}
    return {"symbol": symbol, "size": preset.scaled(size), "color": fill or colour, "line": line}


def rule(preset: Preset, dash: str = "solid") -> dict[str, Any]:
    """Plotly's `line` of a straight line through a plot."""
    return {"color": INK, "width": preset.scaled(0.6), "dash": dash}


def spread(preset: Preset, colour: str, middle: list[float], low: list[float], high: list[float]) -> dict[str, Any]:
    """Plotly's `error_x` or `error_y`: whiskers from `low` to `high` around points at `middle`."""
    return {
        "type": "data",
        "symmetric": False,
        "color": colour,
        "thickness": preset.scaled(0.8),
        "width": preset.scaled(2),
        "array": [up - at for up, at in zip(high, middle, strict=True)],
        "arrayminus": [at - down for at, down in zip(middle, low, strict=True)],
    }


def finish(
    figure: go.Figure, preset: Preset, *, title: str, caption: str, corner: str, height: float = 1.0, **layout: Any
) -> go.Figure:
    """Size, type, legend and margins; title and caption travel in `layout.meta`, as papers print them apart.

    `corner` is printed above the plot at the right; `height` is a part of the preset's.
    """
    small = preset.points(preset.small)
    line = small * 1.45
    rows = _legend_rows(figure, preset)
    figure.update_layout(
        template="none",
        width=preset.width_px,
        paper_bgcolor="#ffffff",
        height=round(preset.height_px * height + line * max(0, rows - 2)),
        plot_bgcolor="#ffffff",
        font={"family": preset.family, "size": small, "color": INK},
        margin={
            "l": preset.scaled(8),
            "r": preset.scaled(8),
            "t": line * (rows + 1) + preset.scaled(5),
            "b": preset.scaled(8),
            "pad": 0,
            "autoexpand": True,
        },
        showlegend=rows > 0,
        hovermode="closest",
        meta={"title": title, "caption": caption, "corner": corner},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "yref": "paper",
            "font": {"size": small},
            "itemwidth": 30,
            "tracegroupgap": 0,
            "traceorder": "normal",
            "bgcolor": "rgba(0,0,0,0)",
            "entrywidth": _entry_width(figure, preset),
            "entrywidthmode": "pixels",
        },
    )
    figure.update_layout(**layout)
    # a title is the one text that Plotly places by the edge of the page
    figure.update_layout(
        title={"text": corner, "font": {"size": small, "color": SOFT}, "pad": {"t": preset.scaled(3)}},
        title_x=1,
        title_xref="paper",
        title_xanchor="right",
        title_y=1,
        title_yref="container",
        title_yanchor="top",
    )
    return figure


def _legend_names(figure: go.Figure) -> list[str]:
    return [trace.name for trace in figure.data if trace.name and trace.showlegend is not False]


def _entry_width(figure: go.Figure, preset: Preset) -> float:
    """Room for the longest name in CSS pixels; entries are as wide as the widest one."""
    letter = 0.44 if preset.family == SERIF else 0.5  # of the type size, on average
    return letter * preset.points(preset.small) * max(map(len, _legend_names(figure)), default=0) + 6


def _legend_rows(figure: go.Figure, preset: Preset) -> int:
    names = _legend_names(figure)
    room = preset.width_px - 7.2 * preset.points(preset.small) - preset.scaled(10)  # less numbers and title of the axis
    return -(-len(names) // max(1, int(room // (_entry_width(figure, preset) + 40))))


def colour_bar(preset: Preset, title: str, **more: Any) -> dict[str, Any]:
    """A colour bar at the right, as high as the plot."""
    small = preset.points(preset.small)
    return {
        "title": {"text": title, "side": "right", "font": {"size": small}},
        "thickness": preset.scaled(6),
        "len": 1,
        "lenmode": "fraction",
        "y": 0.5,
        "x": 1,
        "xpad": preset.scaled(4),
        "ypad": 0,
        "outlinewidth": preset.scaled(0.5),
        "tickfont": {"size": small},
        "ticks": "outside",
        "ticklen": preset.scaled(2),
        "nticks": 5,
    } | more


def add_cells(
    figure: go.Figure,
    columns: Sequence[float],
    rows: Sequence[float],
    values: Sequence[float],
    *,
    limits: tuple[float, float],
    bar: dict[str, Any],
    hover: str,
) -> None:
    """Squares of side 1 around (column, row), from the lightest colour at the first of `limits` to the darkest."""
    scale = [[place / (len(SEQUENTIAL) - 1), colour] for place, colour in enumerate(SEQUENTIAL)]
    shade = {"color": list(values), "colorscale": scale, "cmin": limits[0], "cmax": limits[1]}
    figure.add_bar(
        x=list(columns),
        base=[row - 0.5 for row in rows],
        y=[1] * len(rows),
        width=1,
        showlegend=False,
        # an outline of the same colour hides the seams that viewers draw between rectangles
        marker=shade | {"line": {"width": 0.4, **shade}, "colorbar": bar},
        customdata=list(values),
        hovertemplate=hover,
    )
    figure.update_layout(bargap=0, barmode="overlay")


def add_numbers(
    figure: go.Figure,
    columns: Sequence[float],
    rows: Sequence[float],
    texts: Sequence[str],
    dark: Sequence[bool],
    size: float,
) -> None:
    """Numbers in cells, white on dark ones; `size` of the type in pixels."""
    for colour, on_dark in (("#ffffff", True), (INK, False)):
        chosen = [place for place, value in enumerate(dark) if value == on_dark]
        figure.add_scatter(
            x=[columns[place] for place in chosen],
            y=[rows[place] for place in chosen],
            mode="text",
            text=[texts[place] for place in chosen],
            textfont={"size": size, "color": colour},
            hoverinfo="skip",
            showlegend=False,
        )


# name of the columns -> name in the legend, colour, dash, mark; value and interval of Focus come last, on top
LINES = {
    "window_only": ("window only", WINDOW, "dashdot", "cross-thin-open"),
    "random": ("random centroids", RANDOM, "dash", "triangle-up-open"),
    "shuffled": ("shuffled groups", SHUFFLED, "dot", "square-open"),
    "value": ("Focus", FOCUS, "solid", "circle"),
}


def add_bands(
    figure: go.Figure, rows: list[dict[str, Any]], x: list[float], preset: Preset, *, legend: bool = True, **where: Any
) -> list[str]:
    """One line per series of `LINES` that the rows, one for each x, have, with its band if there is one."""
    known = {key: look for key, look in LINES.items() if any(row.get(key) is not None for row in rows)}
    for key, (_, colour, _, _) in known.items():  # all bands first, so that none hides a line
        ends = ("low", "high") if key == "value" else (f"{key}_low", f"{key}_high")
        low, high = ([row.get(end) for row in rows] for end in ends)
        if all(value is not None for value in low + high):
            figure.add_scatter(
                x=[*x, *reversed(x)],
                y=[*high, *reversed(low)],
                fill="toself",
                mode="lines",
                line={"width": 0},
                fillcolor=_faded(colour),
                hoverinfo="skip",
                showlegend=False,
                **where,
            )
    for key, (name, colour, dash, symbol) in known.items():
        figure.add_scatter(
            x=x,
            y=[row.get(key) for row in rows],
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": preset.scaled(1.2), "dash": dash},
            marker=mark(preset, colour, symbol, 3.2, edge=0.8),
            legendgroup=name,
            showlegend=legend,
            **where,
        )
    return [name for name, _, _, _ in known.values()]


def interval_words(rows: list[dict[str, Any]]) -> str:
    """What the intervals of a statistic are over, for a caption; fewer than two units give none."""
    units = counted(rows[0]["units"], rows[0]["unit"])
    known = any(row["low"] is not None for row in rows)
    return f"with 95 % bootstrap intervals over {units}" if known else f"without intervals ({units})"


def _faded(colour: str) -> str:
    """A quarter of the colour on white; see-through fills are not understood by every printer."""
    mixed = (round(255 - 0.25 * (255 - int(colour[at : at + 2], 16))) for at in (1, 3, 5))
    return "#" + "".join(f"{value:02x}" for value in mixed)
