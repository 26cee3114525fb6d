"""How chunks are coded: codecs, and shards that hold many chunks."""
