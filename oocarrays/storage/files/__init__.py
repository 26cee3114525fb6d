"""Array files, groups and local array files: opened, described, created, and whether they are there."""
