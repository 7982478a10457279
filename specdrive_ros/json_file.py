"""JSON that anybody may have written. Does not know what should stand in it."""

import json


def parse_json(text: str | bytes) -> object:
    """As `json.loads`. Raises ValueError for whatever is none, also where it is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
