"""Sections of an interrupted write, as a journal keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from oocarrays.errors import JournalError
from oocarrays.mapping.selection import Selection
from oocarrays.storage.journal.texts import kept_sections, sections_again

pytestmark = pytest.mark.once


@pytest.mark.parametrize("sections", [[np.s_[None, ::-2, 3, None, [4, 1, 4]]], [np.s_[()]], [np.s_[0:0]]])
def test_sections_are_kept_as_they_were(sections: list) -> None:
    shape = (6, 5, 7)
    selections = [Selection.of(each, shape) for each in sections]
    (again,) = sections_again(kept_sections(None, selections), shape)
    taken, data = Selection.of(again, shape), np.arange(6 * 5 * 7).reshape(shape)
    np.testing.assert_array_equal(
        taken.arranged(data[np.ix_(*taken.axes)]), selections[0].arranged(data[np.ix_(*selections[0].axes)])
    )
    with pytest.raises(JournalError, match="which are outside an array of"):
        sections_again([[{"slice": 3}]], shape)
