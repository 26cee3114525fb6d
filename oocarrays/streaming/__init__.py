"""Streams: opening, writing, reading, access by cell, and conversion to arrays."""
