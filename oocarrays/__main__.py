"""Entry point of ``python -m oocarrays``, the same as the command ``oocarrays``."""

import sys

from oocarrays.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
