"""The chunks of one array file: read, written, changed in part, and copied."""
