"""The planner as a driver for AlpaSim's egodriver contract, which Autoware's CARLA scenario runner also speaks.

    wire.py      messages <-> arrays               (protobuf, no gRPC)
    session.py   one session: inputs in, plan out  (neither)
    planners.py  one planner per session, on shared weights
    service.py   the calls and their statuses      (gRPC)
    server.py    port and shutdown

The messages come from the package `carla-driver-interface` (the extra `alpasim`). Run: `specdrive serve --alpasim`.
"""
