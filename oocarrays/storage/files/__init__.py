"""Array files, groups and local array files: opening, description, creation, and presence checks."""
