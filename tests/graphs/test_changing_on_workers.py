"""On a cluster, too, a source that changes while a plan without a target reads it is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import RunError
from tests.changing import VERBS, forget_gates, rewrite_at_gate
from tests.graphs.clusters import within
from tests.small import DATA, make


@pytest.mark.parametrize(
    "verb", ["read_sections, independent", "read_sections, two-phase", "distribute", "reduce", "lazy rechunk"]
)
def test_a_source_that_changes_is_noticed(verb: str, two: Client, tmp_path: Path) -> None:
    source = str(tmp_path / "s.zarr")
    make(source)
    how = {} if verb == "lazy rechunk" else {"scheduler": two}
    np.testing.assert_array_equal(within(lambda: VERBS[verb](source, ooc.open_array, how)), DATA)
    two.run(rewrite_at_gate, source, 2)
    try:
        with pytest.raises(RunError, match="changed while it was read"):
            within(lambda: VERBS[verb](source, ooc.open_array, how))
    finally:
        two.run(forget_gates)
