"""Coding of chunks: codecs, and shards that hold many chunks."""
