"""Arrays on disk as they are read and written: by sections, in slabs, ahead of time, and lazily."""
