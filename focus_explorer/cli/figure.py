"""`focus-explorer figure`: a figure of a run or a corpus for a paper."""

from __future__ import annotations

import argparse

from focus_explorer.cli.files import Lister, add_file_options, chosen_format, named_lines
from focus_explorer.cli.options import print_note
from focus_explorer.usecases.maps import has_map, map_payload
from focus_explorer.usecases.runs import check_run
from focus_explorer.usecases.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """Figure, format, output file, size, layer and head."""
    add_file_options(parser, "which figure; --list names them", "pdf, svg, png or html", _ListFigures)
    parser.add_argument(
        "--preset",
        default="column",
        help="size and type, for the place it will stand; --list names them (default: column)",
    )
    parser.add_argument("--layer", type=int, help="of a figure of one layer (default: the middle one)")
    parser.add_argument(
        "--head",
        type=int,
        help="key-value head of the mask, or query head where those of a key-value head differ"
        "; the first when left out",
    )
    parser.set_defaults(run=run)


class _ListFigures(Lister):
    def lines(self) -> list[str]:
        from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, PRESETS

        presets = {
            name: f"{p.width:g} x {p.height:g} mm, {p.family.split(',')[0]} {p.small:g} to {p.size:g} pt: {p.about}"
            for name, p in PRESETS.items()
        }
        return [
            "figures",
            *named_lines(FIGURES),
            "formats",
            f"  {', '.join(FIGURE_FORMATS)}",
            "presets",
            *named_lines(presets),
        ]


def run(arguments: argparse.Namespace) -> None:
    """Draw the figure; a map is made first where none is stored."""
    from focus_explorer.exports.figures.write import FIGURE_FORMATS, write_figure
    from focus_explorer.usecases.corpora.register import is_stored_corpus

    file_format = chosen_format(arguments, {name: f".{name}" for name in FIGURE_FORMATS})
    service = Service(arguments.db)
    if arguments.what == "map" and not is_stored_corpus(service, arguments.run_id):
        _store_map(service, arguments)
    path = write_figure(
        service.database,
        arguments.run_id,
        arguments.what,
        file_format,
        arguments.out,
        preset=arguments.preset,
        layer=arguments.layer,
        head=arguments.head,
    )
    print(path)


def _store_map(service: Service, arguments: argparse.Namespace) -> None:
    """Make the map of the layer unless it is stored; the page does the same when the layer is shown."""
    from focus_explorer.exports.figures.write import checked_layer

    check_run(service.database, arguments.run_id)
    layer = checked_layer(service.database, arguments.run_id, arguments.layer)
    if not has_map(service.database, arguments.run_id, layer):
        print_note(f"making the map of layer {layer}, which is kept")
        map_payload(service, arguments.run_id, layer)
