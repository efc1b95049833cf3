"""Statistics for papers, each with its uncertainty and what chance gives; see docs/statistics.md."""

from focus_explorer.statistics.blocks import mean_interval

__all__ = ["mean_interval"]
