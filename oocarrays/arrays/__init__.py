"""Arrays and groups: creation, opening, and access."""
