"""Recommendations for pipelines and for traces that are drawn from seeds are the stored ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.facts import recommendations
from tests.golden.pipelines import drawn_traces, pipeline_traces
from tests.golden.records import Golden

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("kind", "traces"), [("pipeline", pipeline_traces), pytest.param("drawn", drawn_traces, marks=pytest.mark.long)]
)
def test_recommendations_are_the_stored_ones(tmp_path: Path, golden: Golden, kind: str, traces: Any) -> None:
    new = {name: recommendations(trace.advise(memory="1GiB")) for name, trace in traces(tmp_path)}
    golden.check(new, lambda name: name.startswith(kind))
