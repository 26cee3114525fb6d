"""Cases that reproduce what papers measured: in the form of `cases`, each with its ways beside it.

`run.py set` leaves them out unless `--papers` is given. Listing them imports only the standard library.
"""
