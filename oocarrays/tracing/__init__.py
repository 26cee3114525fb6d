"""What a program reads and writes of stored arrays: asked by a person."""
