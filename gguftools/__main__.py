"""`python -m gguftools`."""

import sys

from gguftools.cli import main

if __name__ == "__main__":
    sys.exit(main())
