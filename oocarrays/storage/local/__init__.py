"""Local files: blobs, byte ranges, memory pages, and syncing to devices."""
