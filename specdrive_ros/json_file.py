"""Parses JSON from untrusted files. Does not know what it should contain."""

import json


def parse_json(text: str | bytes) -> object:
    """As `json.loads`. Raises ValueError for anything that is not JSON, or that is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
