"""Serves on a port until a signal: SIGINT and SIGTERM are the normal way to end a server, not errors."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread

import grpc
from carla_driver_interface.protocol import add_EgodriverServiceServicer_to_server, channel_options

from specdrive_ros.alpasim.service import DriverService
from specdrive_ros.errors import InputError

SPARE_THREADS = 4  # in addition to one per session's drive
END_S = 0.5  # for calls in progress when the server ends
EXPIRE_EVERY_S = 5.0  # interval at which idle sessions are looked for
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def serving(service: DriverService, host: str, port: int, sessions: int) -> Iterator[int]:
    """The service on a port, any free one for 0; yields the port. Raises InputError if it is taken."""
    options = [*channel_options(), ("grpc.so_reuseport", 0)]  # otherwise a second server would take half of the calls
    server = grpc.server(ThreadPoolExecutor(sessions + SPARE_THREADS), options=options)
    add_EgodriverServiceServicer_to_server(service, server)
    bound = _bind(server, host, port)
    server.start()
    ended = Event()
    Thread(target=_expire_until, args=(service, ended), name="session expiry", daemon=True).start()
    try:
        yield bound
    finally:
        ended.set()
        server.stop(END_S).wait()
        service.close()


def _expire_until(service: DriverService, ended: Event) -> None:
    while not ended.wait(EXPIRE_EVERY_S):
        service.expire()


def _bind(server: grpc.Server, host: str, port: int) -> int:
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        bound = 0
    if not bound:
        raise InputError(f"--host {host} --port {port}: cannot be listened on; another port, or 0 for any that is free")
    return bound


def serve_until_signal(
    service: DriverService, host: str, port: int, sessions: int, on_ready: Callable[[int], None]
) -> None:
    """Blocks until a signal. `on_ready` is called with the port. From the main thread only."""
    ended = Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in SIGNALS}
    try:
        with serving(service, host, port, sessions) as bound:
            on_ready(bound)
            ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
