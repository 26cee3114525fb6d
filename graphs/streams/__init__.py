"""Streams on the workers of a cluster: each rank's cells live on the worker that it is put on."""
