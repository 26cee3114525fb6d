"""Local files: blobs, byte ranges, pages in memory, and getting what was written to its device."""
