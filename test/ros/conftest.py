"""Real nodes over real DDS, each test in a domain of its own on this machine."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # for what has to come: only a test that fails waits so long, however slow the machine is
SPIN_S = 0.05  # always the same: with another timeout rclpy begins with the first topic again
collect_ignore_glob = [] if importlib.util.find_spec("rclpy") else ["test_*.py"]


@pytest.fixture
def domain(monkeypatch):
    """A DDS domain id nobody else uses; the process's environment points to it."""
    from specdrive_ros.ros.domain import DDS_PROFILE, dds_environment, own_domain

    with own_domain() as number:
        for name, value in dds_environment(number, PROJECT / DDS_PROFILE).items():
            monkeypatch.setenv(name, value)
        yield number


class Graph:
    """Nodes of this process and processes beside it, in one domain; spins until something is true."""

    def __init__(self, domain: int):
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor

        self.context = Context()
        self.context.init(args=[], domain_id=domain)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.nodes, self.processes = [], []

    def add(self, node):
        self.nodes.append(node)
        self.executor.add_node(node)
        return node

    def listener(self, name: str = "listener"):
        from rclpy.node import Node

        return self.add(Node(name, context=self.context, use_global_arguments=False))

    def start(self, *command: str) -> subprocess.Popen:
        """A python process: `-m module …` or `-c code`."""
        process = subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | {"PYTHONPATH": _python_path()},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def spin_until(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
        """True as soon as the condition holds, False after the timeout."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.executor.spin_once(timeout_sec=SPIN_S)
        return True

    def spin_for(self, seconds: float) -> None:
        """Serves the nodes while something is not to come."""
        self.spin_until(lambda: False, seconds)

    def answer(self, client, request):
        """What a service of a node of this process answers."""
        assert self.spin_until(client.service_is_ready), f"{client.srv_name} is not there"
        future = client.call_async(request)
        assert self.spin_until(future.done), f"{client.srv_name} does not answer"
        return future.result()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
        for node in self.nodes:
            node.destroy_node()
        self.executor.shutdown()
        self.context.try_shutdown()


def _python_path() -> str:
    return os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def graph(domain):
    graph = Graph(domain)
    yield graph
    graph.close()
