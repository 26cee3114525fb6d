"""``python -m oocarrays`` does what ``oocarrays`` does."""

import sys

from oocarrays.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
