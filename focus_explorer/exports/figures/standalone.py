"""A figure as one HTML file with plotly.js inside: it works without a network and may load nothing from anywhere."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import plotly
import plotly.graph_objects as go

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_STYLE = """
body { font: 15px/1.5 Arial, "Liberation Sans", Helvetica, sans-serif; color: #1a1a1a; background: #fff;
  margin: 24px auto; max-width: 960px; padding: 0 16px; }
h1 { font-size: 20px; } figure { margin: 0; overflow-x: auto; } figcaption { max-width: 46em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; font-size: 13px; color: #4a4a4a; }
dd { margin: 0; overflow-wrap: anywhere; }
"""
_SETTINGS = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"], "plotlyServerURL": ""}


def page(figure: go.Figure) -> str:
    """The page: title, figure, caption and provenance, all from `layout.meta`."""
    meta = figure.layout.meta
    script = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    script = script.replace("</script", "<\\/script")
    drawing = json.dumps(json.loads(figure.to_json()), ensure_ascii=False).replace("<", "\\u003c")
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in meta["provenance"].items())
    title = escape(meta["title"])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{_STYLE}</style></head>
<body><h1>{title}</h1>
<figure><div id="figure" role="img" aria-label="{title}"></div>
<figcaption>{escape(meta["caption"])} {escape(meta["setting"])}.</figcaption></figure>
<details><summary>Where this comes from</summary><dl>{rows}</dl></details>
<script>{script}</script>
<script type="application/json" id="data">{drawing}</script>
<script>
const drawing = JSON.parse(document.getElementById("data").textContent);
Plotly.newPlot("figure", drawing.data, drawing.layout, {json.dumps(_SETTINGS)});
</script></body></html>
"""
