"""Every method and codec on S3: what is moved is what was planned, and what is left is the array."""

from __future__ import annotations

import numpy as np
import pytest

from tests.seams import KEPT_REQUEST, KEPT_SOURCE, RECHUNK_METHODS
from tests.small import CODECS, DATA
from tests.stores.servers import S3
from tests.stores.test_s3 import LIBRARIES, make, plan
from tests.test_rechunk import assert_moved_as_planned

pytestmark = pytest.mark.once

PAIRS = [
    (LIBRARIES[(m + c) % 2], method, codec)
    for m, method in enumerate(RECHUNK_METHODS)
    for c, codec in enumerate(CODECS)
]
"""Each method with each codec, by the libraries in turn: so each library does all methods and all codecs."""


@pytest.mark.sampled
@pytest.mark.parametrize(("library", "method", "codec"), PAIRS, indirect=["library"])
def test_every_method_and_codec_moves_what_was_planned(s3: S3, library: str, method: str, codec: str) -> None:
    source = make(s3, s3.url(f"{library}-{codec}"), compressors=CODECS[codec])
    job = plan(s3, source, s3.url(f"{library}-{codec}-{method}"), method=method, overwrite=True)
    np.testing.assert_array_equal(job.run()[...], DATA)
    assert_moved_as_planned(job)
    keys = s3.keys(f"{library}-{codec}-{method}/")
    assert [key for key in keys if "oocarrays" in key] == [
        f"{library}-{codec}-{method}/{each}" for each in (KEPT_REQUEST, KEPT_SOURCE)
    ]
