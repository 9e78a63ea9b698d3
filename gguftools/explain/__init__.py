"""Why is it not faster: reads reports, traces, logs and metrics, and names the cause."""

from __future__ import annotations

from gguftools.explain.explanation import Explanation, Finding, explain
from gguftools.explain.reading import read_facts

__all__ = ["Explanation", "Finding", "explain", "read_facts"]
