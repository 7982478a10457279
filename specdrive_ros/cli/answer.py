"""What a command that looks something up prints: lines for people, or one JSON document (`--json`)."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence


def print_answer(args: Namespace, document: dict, lines: Sequence[str]) -> None:
    if args.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print("\n".join(lines))
