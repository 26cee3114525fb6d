"""Plans of redistributions between layouts, of halo exchanges, and of multicasts and all-to-alls."""
