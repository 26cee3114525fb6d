"""Streams of the cells of an array: arithmetic of modes, segments, blocks and directories."""
