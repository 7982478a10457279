"""A command's answer on stdout: lines for people, or with `--json` one JSON document and nothing else."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable


def json_text(document: dict) -> str:
    """The document in the form in which commands print it and write it to files."""
    return json.dumps(document, indent=1) + "\n"


def print_json(document: dict) -> None:
    sys.stdout.write(json_text(document))


def print_answer(args: Namespace, document: dict, lines: Iterable[str]) -> None:
    """Prints the document if `args.json`, else the lines."""
    sys.stdout.write(json_text(document) if args.json else "".join(f"{line}\n" for line in lines))
