"""Collective reads and writes: file domains, rounds, messages between ranks, and the choice of method."""
