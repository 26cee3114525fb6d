"""Streams of the cells of an array: modes, segments, blocks and directories, as arithmetic."""
