"""Progress of long work: a bar on a terminal, plain lines elsewhere. Always on stderr, so that stdout stays data."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_LINE_EVERY_S = 10.0


class PlainLines:
    """The same interface as `Bar`, printing a line every ten seconds."""

    def __init__(self, name: str, total: int):
        self.name, self.total, self.done, self.started, self.printed = name, total, 0, time.monotonic(), 0.0

    def advance(self, steps: int = 1, text: str = "") -> None:
        self.done += steps
        now = time.monotonic()
        if now - self.printed >= PLAIN_LINE_EVERY_S or self.done >= self.total:
            self.printed = now
            line = f"{self.name}: {self.done}/{self.total} {text} ({now - self.started:.0f} s)"
            print(line, file=sys.stderr, flush=True)


class Bar:
    """A bar of rich's progress display."""

    def __init__(self, bar: Progress, name: str, total: int, done: int):
        self.bar, self.task = bar, bar.add_task(name, total=total, completed=done, text="")

    def advance(self, steps: int = 1, text: str = "") -> None:
        self.bar.update(self.task, advance=steps, text=text)


@contextmanager
def progress(name: str, total: int, done: int = 0) -> Iterator[PlainLines | Bar]:
    """`with progress("scenes", 100) as bar: bar.advance(1, "text beside the bar")`"""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = PlainLines(name, total)
        lines.done = done
        yield lines
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=console) as bar:
        yield Bar(bar, name, total, done)
