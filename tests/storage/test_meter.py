"""A meter's counts are told once, from where they happened."""

from __future__ import annotations

import pickle

from oocarrays.storage.meter import Meter


def test_a_meter_that_travels_in_the_middle_of_a_run_begins_anew() -> None:
    here = Meter()
    here.add(read_requests=9, decoded_bytes=36)
    there = pickle.loads(pickle.dumps(here))
    there.add(read_requests=7)
    here.put(there.take())
    assert (here.read_requests, here.decoded_bytes) == (16, 36)
