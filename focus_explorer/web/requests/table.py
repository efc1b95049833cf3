"""Every use case that the page asks for by name or that programs and language models may call, one row each.

A row is the function that answers, with its name on the page (`page`) and for programs (`api`); its parameters are the
request, and a program finds its docstring. Adding a request is adding a row.
"""

from __future__ import annotations

from focus_explorer.exports.kinds import export_choices
from focus_explorer.usecases import run_payload
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.compare.jobs import Comparisons
from focus_explorer.usecases.compare.runs import compare_runs, partners
from focus_explorer.usecases.groups import agreement_payload, group_payload
from focus_explorer.usecases.labels import group_names
from focus_explorer.usecases.maps import map_neighbours, map_payload
from focus_explorer.usecases.pairs import PairViews, TokenAttentions
from focus_explorer.usecases.request import UseCase
from focus_explorer.usecases.statistics import StatisticsPayloads
from focus_explorer.web import downloads
from focus_explorer.web.downloads import Downloads
from focus_explorer.web.requests import compare, groups, runs

USE_CASES = (
    # runs
    UseCase(run_payload.layer_cells, page="layer_cells"),
    UseCase(run_payload.group_orders, page="group_orders"),
    UseCase(run_payload.run_timings, page="timings"),
    UseCase(CentroidCards.trained_on, page="trained_on", part=CentroidCards),
    UseCase(run_payload.word_classes, page="word_classes"),
    UseCase(run_payload.predictions, page="predictions"),
    UseCase(run_payload.prediction_changes, page="prediction_changes"),
    UseCase(TokenAttentions.state, page="token_attention", part=TokenAttentions),
    UseCase(TokenAttentions.start, page="token_attention_start", part=TokenAttentions),
    UseCase(TokenAttentions.stop, page="token_attention_stop", part=TokenAttentions),
    UseCase(runs.live_groups, page="live_groups"),
    UseCase(runs.runs, api="runs"),
    UseCase(runs.run, api="run"),
    UseCase(runs.groups, api="groups"),
    UseCase(runs.layers, api="layers"),
    UseCase(runs.tokens, api="tokens"),
    UseCase(runs.predictions, api="predictions"),
    UseCase(compare.compare, api="compare"),
    UseCase(runs.run_sql, api="sql", public=False),
    # centroid files
    UseCase(runs.centroids, api="centroids"),
    UseCase(runs.compare_centroids, api="compare_centroids"),
    UseCase(runs.measured_budgets, api="budgets"),
    UseCase(runs.use_budget, api="use_budget", public=False),
    # groups and maps
    UseCase(group_payload, page="groups"),
    UseCase(group_names, page="group_names"),
    UseCase(groups.name_group, page="name_group", api="name_group"),
    UseCase(agreement_payload, page="agreement"),
    UseCase(map_payload, page="map"),
    UseCase(map_neighbours, page="map_neighbours"),
    UseCase(groups.agreement, api="agreement"),
    UseCase(groups.group_names, api="group_names"),
    UseCase(groups.token_map, api="map"),
    # pairs and attention
    UseCase(groups.mask_tile, page="mask_tile"),
    UseCase(PairViews.distances, page="pair_distances", part=PairViews),
    UseCase(PairViews.distance_mean, page="pair_distances_mean", part=PairViews),
    UseCase(PairViews.attention, page="attention", part=PairViews),
    UseCase(PairViews.links, page="attention_links", part=PairViews),
    UseCase(PairViews.start, page="measure_attention", part=PairViews),
    UseCase(PairViews.stop, page="stop_attention", part=PairViews),
    UseCase(groups.mask, api="mask"),
    UseCase(groups.distances, api="distances"),
    UseCase(groups.attention, api="attention"),
    UseCase(groups.attention_links, api="attention_links"),
    # comparisons
    UseCase(compare.compared_settings, page="compare_grid"),
    UseCase(compare.start_settings, page="compare_grid_start"),
    UseCase(Comparisons.stop, page="compare_stop", part=Comparisons),
    UseCase(partners, page="compare_partners"),
    UseCase(compare_runs, page="compare_beside"),
    UseCase(compare.numbers, page="compare_numbers"),
    UseCase(compare.times_by_length, page="compare_lengths"),
    UseCase(compare.start_lengths, page="compare_lengths_start"),
    UseCase(compare.links, page="compare_links"),
    UseCase(compare.start_links, page="compare_links_start"),
    UseCase(compare.heads, page="compare_heads"),
    UseCase(compare.start_heads, page="compare_heads_start"),
    UseCase(compare.changed_run, page="what_if"),
    UseCase(compare.start_changed_run, page="what_if_start"),
    UseCase(compare.save_changed_run, page="what_if_save"),
    UseCase(compare.generation, page="compare_generation"),
    UseCase(compare.start_generation, page="compare_generation_start"),
    UseCase(compare.settings, api="settings"),
    UseCase(compare.overtaking, api="lengths"),
    UseCase(compare.beside, api="beside"),
    UseCase(compare.missing_links, api="missing_links"),
    UseCase(compare.head_costs, api="head_costs"),
    UseCase(compare.what_if, api="what_if"),
    # statistics
    UseCase(StatisticsPayloads.overview, page="statistics", part=StatisticsPayloads),
    UseCase(StatisticsPayloads.layer, page="statistics_layer", part=StatisticsPayloads),
    UseCase(StatisticsPayloads.pairs, page="statistics_pairs", part=StatisticsPayloads),
    UseCase(StatisticsPayloads.agreement, page="statistics_agreement", part=StatisticsPayloads),
    UseCase(StatisticsPayloads.measure, page="statistics_measure", part=StatisticsPayloads),
    UseCase(StatisticsPayloads.stop, page="statistics_stop", part=StatisticsPayloads),
    UseCase(StatisticsPayloads.measurement, page="statistics_job", part=StatisticsPayloads),
    UseCase(groups.statistics, api="statistics"),
    # exports
    UseCase(export_choices, page="export_choices"),
    UseCase(downloads.command, page="export_command"),
    UseCase(downloads.start, page="export_start"),
    UseCase(Downloads.state, page="export_state", part=Downloads),
    UseCase(Downloads.stop, page="export_stop", part=Downloads),
    # labels
    UseCase(runs.rename, api="rename"),
    UseCase(runs.note, api="note"),
    UseCase(runs.tag, api="tag"),
    UseCase(runs.delete, api="delete"),
    UseCase(runs.undelete, api="undelete"),
)
PAGE = {each.page: each for each in USE_CASES if each.page}
API = {each.api: each for each in USE_CASES if each.api}
