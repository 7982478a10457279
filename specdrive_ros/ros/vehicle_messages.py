"""The two vehicle command messages, imported only if used: a system may have just one of the packages."""

from importlib import import_module

import numpy as np

from specdrive_ros.controller import ControlCommand
from specdrive_ros.errors import InputError
from specdrive_ros.ros import vehicle_interface
from specdrive_ros.ros.vehicle_geometry import EMBEDDED, VehicleGeometry

MESSAGE_OF_OUTPUT = {
    "ackermann": ("ackermann_msgs", "AckermannDrive"),
    "carla": ("carla_msgs", "CarlaEgoVehicleControl"),
}
TOPIC_OF_OUTPUT = {"ackermann": "ackermann_cmd", "carla": "vehicle_control_cmd"}


def message_type(output: str) -> type:
    """The message class of an output. Raises InputError if its package is not installed."""
    package, name = MESSAGE_OF_OUTPUT[output]
    try:
        return getattr(import_module(f"{package}.msg"), name)
    except ImportError as error:
        others = " or ".join(other for other in MESSAGE_OF_OUTPUT if other != output)
        raise InputError(
            f"output {output}: package {package} is not installed; install it or choose {others}"
        ) from error


def message_of(output: str, command: ControlCommand, car: VehicleGeometry = EMBEDDED) -> object:
    """A controller's command as the message of `output`, for a car with this geometry."""
    return _WRITERS[output](command, car)


def _ackermann(command: ControlCommand, car: VehicleGeometry) -> object:
    wanted = vehicle_interface.ackermann(
        command.speed_mps, command.acceleration_mps2, command.curvature_per_m, car
    )
    return message_type("ackermann")(
        speed=wanted.speed_mps,
        acceleration=abs(wanted.acceleration_mps2),
        steering_angle=wanted.steering_angle_rad,
    )


def _carla(command: ControlCommand, car: VehicleGeometry) -> object:
    wanted = vehicle_interface.pedals(command.acceleration_mps2, command.curvature_per_m, car)
    return message_type("carla")(throttle=wanted.throttle, brake=wanted.brake, steer=wanted.steer)


_WRITERS = {"ackermann": _ackermann, "carla": _carla}


def from_ackermann(message: object, speed_mps: float) -> tuple[float, float]:
    """(acceleration m/s², curvature 1/m) for an AckermannDrive at `speed_mps`. Raises InputError if not finite."""
    values = (message.speed, message.acceleration, message.steering_angle)
    _check_finite("AckermannDrive", values)
    command = vehicle_interface.Ackermann(*values)
    acceleration = vehicle_interface.servo_acceleration(command, speed_mps)
    return acceleration, vehicle_interface.curvature(command.steering_angle_rad)


def from_carla(message: object) -> tuple[float, float]:
    """(acceleration m/s², curvature 1/m) for a CarlaEgoVehicleControl. Raises InputError if not finite."""
    values = (message.throttle, message.brake, message.steer)
    _check_finite("CarlaEgoVehicleControl", values)
    limited = np.clip(values, (0.0, 0.0, -1.0), (1.0, 1.0, 1.0))
    return vehicle_interface.from_pedals(vehicle_interface.Pedals(*limited.tolist()))


def _check_finite(name: str, values: tuple[float, ...]) -> None:
    if not np.all(np.isfinite(values)):
        raise InputError(f"{name} {values}: not finite; all of them must be")
