"""What Dask's log keeps: the words of a failed transfer, and not the messages that its traceback holds.

A worker keeps the last ten thousand records of its log for the dashboard, each with its exception, whose frames hold
what was being sent when the receiver died: memory that nobody has counted, and that nothing gives back.
"""

from __future__ import annotations

import logging

WORKERS = "distributed.worker"
"""The log of which workers keep records."""


def keep_only_words(record: logging.LogRecord) -> bool:
    """Put a record's exception into words, and let go of it; a filter that lets every record pass."""
    if record.exc_info:
        record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True


def hold_no_messages() -> None:
    """Have the log of this process's workers keep words only; once is enough."""
    logging.getLogger(WORKERS).addFilter(keep_only_words)
