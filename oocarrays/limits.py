"""Limits and counts that several layers share."""

BATCHED_RUNS = 64
"""Minimum number of runs of a local file to request in one call; for fewer, the call costs more than it saves."""
TRAVEL_COPIES = 2
"""Copies of a message in a library while it joins received parts, or copies data to send."""
COPIED_BYTES = 2**20
"""Maximum bytes of coded chunks of local files that are copied for decoding; larger ones are decoded from mapped
pages."""
STAGES = range(2, 5)
"""Numbers of passes of a staged plan."""
