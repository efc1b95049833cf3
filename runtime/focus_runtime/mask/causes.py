"""Names of the reasons why a pair of tokens may attend or may not; importing them costs nothing."""

from __future__ import annotations

CAUSES = ("local_only", "group_only", "local_and_group", "sink_only", "dropped")
