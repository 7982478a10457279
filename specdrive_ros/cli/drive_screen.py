"""What a drive prints while it runs: a line when the reasoning changes, and on a terminal a status line.

Takes the sim's events and the planning cycles; knows nothing about how they came about.
"""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specdrive_ros.evaluation.drive import DrivenCycle

PLAIN_WIDTH = 140
STYLES = {"success": "bold green"}
FAILED_STYLE = "bold red"


def make_console(*, stderr: bool) -> Console:
    """A console that wraps no lines unless it is a terminal."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


class DriveScreen:
    """Prints to a console; a context manager that owns the status line."""

    def __init__(self, console: Console, scenarios: int):
        self.console, self.scenarios = console, scenarios
        self._live = Live(console=console, refresh_per_second=10, transient=True)
        self._scenario, self._said, self._begin_ns = "", "", 0

    def __enter__(self) -> "DriveScreen":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception) -> None:
        self._live.stop()

    def on_event(self, event: Mapping) -> None:
        if event["event"] == "start":
            self._scenario, self._said = f"{event['name']}, seed {event['seed']}", ""
            self._begin_ns = event["stamp_ns"]
            self._line(f"{self._scenario}  ({event['index'] + 1} of {self.scenarios})", "bold")
        elif event["event"] == "outcome":
            style = STYLES.get(event["outcome"], FAILED_STYLE)
            how = f"{event['outcome']}: {event['why']}" if event["why"] else event["outcome"]
            self._line(f"  {event['seconds']:5.1f} s  {how} ({event['distance_m']:.0f} m)", style)

    def on_cycle(self, cycle: DrivenCycle) -> None:
        """Ignores a cycle that comes after its scenario has ended."""
        if cycle.plan.t0_ns < self._begin_ns:
            return
        said = cycle.plan.reasoning if cycle.source == "planned" else f"[{cycle.source}] {cycle.note}"
        total_ms = cycle.plan.stage_ms.get("total", 0.0)
        numbers = f"{cycle.time_s:7.1f} s {cycle.speed_mps:5.1f} m/s {total_ms:4.0f} ms"
        if said != self._said:
            self._said = said
            self._line(f"{numbers}  {said}", "" if cycle.source == "planned" else "yellow")
        if self._live.is_started:
            self._live.update(
                Text(f"{numbers}  {self._scenario}", style="cyan", no_wrap=True, overflow="ellipsis")
            )

    def _line(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)


def print_result(console: Console, summary: Mapping, files: Sequence[str]) -> None:
    """Prints the table of scenarios, the main numbers and where the files are."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column, justify in (
        ("scenario", "left"),
        ("seed", "right"),
        ("outcome", "left"),
        ("driven", "right"),
        ("why", "left"),
    ):
        table.add_column(column, justify=justify)
    for row in summary["scenarios"]:
        outcome = Text(row["outcome"], style=STYLES.get(row["outcome"], FAILED_STYLE))
        table.add_row(
            Text(row["name"]), str(row["seed"]), outcome, f"{row['distance_m']:.0f} m", Text(row["why"])
        )
    console.print()
    console.print(table)
    for line in (_counts_line(summary), _latency_line(summary), *files):
        console.print(Text(line), soft_wrap=True)


def _counts_line(summary: Mapping) -> str:
    rows, cycles = summary["scenarios"], summary["cycles"]
    succeeded = sum(row["outcome"] == "success" for row in rows)
    fallback = cycles["fallback"]["republished"] + cycles["fallback"]["stop"]
    return (
        f"{succeeded} of {len(rows)} scenarios a success; {cycles['planned']} plans of {cycles['observed']} "
        f"observations, {cycles['late']} late, {fallback} fallbacks, {cycles['dropped']} dropped"
    )


def _latency_line(summary: Mapping) -> str:
    total, reasoning = summary["latency_ms"]["total"], summary["reasoning"]
    return (
        f"cycle: median {total['median']:.0f} ms, p99 {total['p99']:.0f} ms, max {total['max']:.0f} ms; "
        f"accepted length {reasoning['accepted_length']:.2f}"
    )
