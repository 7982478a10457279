"""`python -m specdrive_ros`: the same as the `specdrive` command."""

import sys

from specdrive_ros.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
