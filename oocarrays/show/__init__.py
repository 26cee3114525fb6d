"""Text and pictures: lines, tables, trees, notebooks, figures."""
