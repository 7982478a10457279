"""Sizes that passes are rounded up to, so that one CUDA graph serves many lengths.

A pass of T tokens after S rows runs in a bucket of at least that size; a mask hides the padding. Few buckets mean few
captured graphs, many buckets mean little wasted work. Knows no engines.
"""

import json
from collections.abc import Container, Mapping

from specdrive_ros.engine.axes import Range, Ranges
from specdrive_ros.errors import InputError

_TOKENS_STEP, _ROWS_STEP = 64, 128


def bucket(letter: str, size: int, within: Range) -> int:
    """The size that `size` is rounded up to: powers of two, then multiples of 64 (tokens) or 128 (cached rows)."""
    if size <= within.least:
        return within.least
    if letter == "S":
        rounded = -(-size // _ROWS_STEP) * _ROWS_STEP
    elif size > _TOKENS_STEP:
        rounded = -(-size // _TOKENS_STEP) * _TOKENS_STEP
    else:
        rounded = 1 << (size - 1).bit_length()
    return min(rounded, within.largest)


def ranges_of(identity_profile: str) -> tuple[Ranges, ...]:
    """The ranges of each optimisation profile, from an engine's identity."""
    shapes = json.loads(identity_profile)["shapes"]
    return tuple({letter: Range(*sizes) for letter, sizes in one.items()} for one in shapes)


def fit(
    graph: str, profiles: tuple[Ranges, ...], sizes: Mapping[str, int], exact: Container[str] = ()
) -> tuple[int, dict[str, int]]:
    """(optimisation profile, padded sizes) with the least waste. Raises `InputError` if no profile is large enough.

    exact: letters that are not rounded up, because nothing would hide the padding
    """
    fitting = []
    for index, ranges in enumerate(profiles):
        if all(_takes(ranges[letter], size, letter in exact) for letter, size in sizes.items()):
            padded = {
                letter: size if letter in exact else bucket(letter, size, ranges[letter])
                for letter, size in sizes.items()
            }
            fitting.append((sum(padded.values()), index, padded))
    if fitting:
        _, index, padded = min(fitting, key=lambda each: each[:2])
        return index, padded
    _refuse_exact(graph, profiles, sizes, exact)
    largest = {letter: max(ranges[letter].largest for ranges in profiles) for letter in sizes}
    over = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
    room = ", ".join(f"{letter} <= {size}" for letter, size in largest.items())
    raise InputError(f"the {graph} engine was built for {room} at most, this pass has {over}; build it for more")


def _takes(range: Range, size: int, exact: bool) -> bool:
    return size in range if exact else size <= range.largest


def _refuse_exact(graph: str, profiles: tuple[Ranges, ...], sizes: Mapping[str, int], exact: Container[str]) -> None:
    """Raises `InputError` naming the sizes that cannot be rounded up, if these alone fit no profile."""
    fixed = {letter: size for letter, size in sizes.items() if letter in exact}
    if not fixed or any(all(size in ranges[letter] for letter, size in fixed.items()) for ranges in profiles):
        return
    built = "; ".join(
        ", ".join(f"{letter} {ranges[letter].least} … {ranges[letter].largest}" for letter in fixed)
        for ranges in profiles
    )
    asked = ", ".join(f"{letter} = {size}" for letter, size in fixed.items())
    raise InputError(f"the {graph} engine was built for {built}, this pass has {asked}; build it for that")
