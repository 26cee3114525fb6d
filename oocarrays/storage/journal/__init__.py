"""Records that a run keeps beside its target: entries, receipts, fingerprints, locks and leftovers."""
