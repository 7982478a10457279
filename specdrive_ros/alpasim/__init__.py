"""The planner as a driver of AlpaSim's egodriver contract, which Autoware's CARLA scenario runner speaks, too.

    wire.py      messages <-> arrays             (protobuf, no gRPC)
    session.py   one session: what came, a plan  (neither)
    planners.py  one planner a session over shared weights
    service.py   the calls and their statuses    (gRPC)
    server.py    port and life

The messages come from the package `carla-driver-interface` (the extra `alpasim`). Run: `specdrive serve --alpasim`.
"""
