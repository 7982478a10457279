"""The available commands: names, one line of help, and what must be installed for each.

Knows nothing about what they do. Standard library only: `specdrive` reads this table before anything is installed. The
module of command `x` is `specdrive_ros.cli.x`.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """One subcommand.

    help:  one line for `specdrive --help`.
    extra: the optional requirements of pyproject.toml it needs beyond driving, "" for none.
    """

    help: str
    extra: str = ""


COMMANDS = {
    "drive": Command("drive the embedded world in closed loop, camera in, reasoning and trajectory out"),
    "replay": Command("plan over recorded bags, offline and deterministically"),
    "test": Command("run the tests", extra="test"),
    "data": Command("make training data in the embedded world", extra="train"),
    "train": Command("train the target, or a draft for it, or post-train a draft", extra="train"),
    "bench": Command("measure ways of decoding against plain decoding, in one run"),
    "ablate": Command("reproduce the paper's tables: train, measure and inspect drafts, with intervals", extra="train"),
    "export": Command("write the ONNX graphs of a checkpoint", extra="train"),
    "checkpoint": Command("list what a checkpoint contains and lacks; convert drafts to and from public layouts",
                          extra="train"),
    "engine": Command("compile graphs for a device; list, inspect, verify, prune compiled engines",
                      extra="tensorrt-rtx"),
    "budget": Command("predict a planning cycle on a device: memory, stage times, whether the deadline holds"),
    "serve": Command("serve the planner as a driver over AlpaSim's gRPC contract", extra="alpasim"),
    "golden": Command("compare this implementation with reference numbers", extra="train"),
}
