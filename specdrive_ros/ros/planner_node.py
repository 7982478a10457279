"""`planner`: a lifecycle node that takes cameras and odometry and publishes reasoning and trajectory.

A shell around `specdrive_ros.cycle`. The constructor declares parameters; configure loads the model, warms it up and
makes the publishers; activate opens the inputs and starts the worker; deactivate and cleanup undo that in reverse.
Callbacks only leave messages in the inbox; only the worker (`planning_worker.py`) decodes, infers and publishes. Does
not know what the model is.
"""

import sys

if __name__ == "__main__":  # a signal while rclpy is being imported
    from specdrive_ros.ros.starting import end_quietly_on_signals

    end_quietly_on_signals()

import time
import traceback
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType, JumpThreshold
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from specdrive_ros.errors import InputError
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan
from specdrive_ros.ros import qos
from specdrive_ros.ros.build_engines import build_engines_and_exit
from specdrive_ros.ros.diagnostics import ERROR, OK, WARN, Health, diagnostic_array, signature
from specdrive_ros.ros.inbox import Inbox
from specdrive_ros.ros.odometry_source import check_odometry_source
from specdrive_ros.ros.parameters import declare, on_change, read, refuse_while
from specdrive_ros.ros.perception import ODOMETRY, InputPolicy, Perception
from specdrive_ros.ros.plan_outputs import PlanOutputs
from specdrive_ros.ros.planner_health import PlannerHealth
from specdrive_ros.ros.planner_inputs import PlannerInputs
from specdrive_ros.ros.planner_parameters import PARAMETERS, STRUCTURE, TUNING
from specdrive_ros.ros.planning_worker import PlanningWorker
from specdrive_ros.ros.run_node import run_node
from specdrive_ros.safety.stage_budgets import StageBudgets

DIAGNOSTICS_PERIOD_S = 1.0
LOOK_EVERY_S = 0.05  # when looking for a changed status
WORKER_END_S = 5.0
CLOSING_S = 0.3  # for the plan in progress when the process ends
FRAMES_WAITING, ODOMETRY_WAITING = 8, 400


class Planner(Protocol):
    """What the node needs from a planner; `specdrive_ros.cycle.Planner` is one.

    `pace` and `limits` are set on it; `warm_up` and `forget` are called if it has them.
    """

    cameras: Sequence[str]

    def plan(self, observation: Observation) -> Plan: ...


def load_planner(settings: dict) -> Planner:
    """The planner for these settings. Raises InputError for a model that cannot be loaded."""
    from specdrive_ros.cycle import Planner as CyclePlanner

    limit = {"max_new_tokens": settings["max_new_tokens"]} if settings["max_new_tokens"] else {}
    return CyclePlanner.load(
        settings["model"],
        runtime=settings["runtime"],
        seed=settings["seed"],
        draft=settings["draft"] or None,
        action_steps_late=settings["action_steps_late"],
        **limit,
    )


class PlannerNode(LifecycleNode):
    """The planner as a node. `load` makes the planner from the settings; tests pass a small one."""

    def __init__(self, load: Callable[[dict], Planner] = load_planner, **node_arguments):
        super().__init__("planner", **node_arguments)
        declare(self, PARAMETERS)
        refuse_while(self, STRUCTURE, self._why_structure_is_fixed)
        on_change(self, [spec.name for spec in TUNING], self._retune)
        self._load = load
        self._planner: Planner | None = None
        self._worker: PlanningWorker | None = None
        self._inbox: Inbox | None = None
        self._outputs: PlanOutputs | None = None
        self._inputs = PlannerInputs(self)
        self._settings = read(self, PARAMETERS)
        self._health = PlannerHealth()
        self._diagnostics_lock = Lock()
        self._diagnostics_signature: tuple = ()
        self._looked_s = 0.0
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", qos.output())
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(DIAGNOSTICS_PERIOD_S, self._publish_diagnostics, clock=self._steady)
        backwards = JumpThreshold(
            min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=False
        )
        clock = self.get_clock()
        self._jump_handle = clock.create_jump_callback(backwards, post_callback=self._on_clock_back)

    def _why_structure_is_fixed(self) -> str:
        if self._planner is None:
            return ""
        return "can only be changed while the node is unconfigured; clean it up first"

    def _retune(self) -> None:
        self._settings = read(self, PARAMETERS)
        self._inputs.retune(self._settings)
        if self._worker is not None:
            self._perception.policy = _input_policy(self._settings)
            self._worker.retune(self._settings)

    # Life cycle: each stage undoes, in reverse, what its opposite did

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Reads the parameters, loads the model, makes the publishers; on failure stays unconfigured."""
        try:
            self._configure()
        except Exception as error:  # loading a model may raise anything: logged, can be retried
            self.get_logger().error(f"configure failed: {error}\n{traceback.format_exc()}")
            self._free()
            self._health.model = Health("model", ERROR, "CONFIGURE_FAILED", f"configure failed: {error}")
            self._publish_diagnostics()
            return TransitionCallbackReturn.FAILURE
        self._publish_diagnostics()
        return super().on_configure(state)

    def _configure(self) -> None:
        self._settings = read(self, PARAMETERS)
        check_odometry_source(self._settings)
        begun = time.monotonic()
        self._planner = self._load(self._settings)
        self._cameras = _ordered_cameras(self._settings["cameras"], self._planner.cameras)
        self._budgets = StageBudgets()
        self._warm_up()
        self._outputs = PlanOutputs(
            self, lambda: self._inputs.vehicle.geometry, autoware=self._settings["autoware_output"]
        )
        text = f"{self._settings['model']} on {self._settings['runtime']}"
        values = {
            "cameras": ", ".join(self._cameras),
            "draft": self._settings["draft"] or "the model's own",
            "seed": self._settings["seed"],
            "loaded_in_s": round(time.monotonic() - begun, 2),
        }
        self._health.model = Health("model", OK, "", text, values)

    def _warm_up(self) -> None:
        """Runs the first cycles of a runtime, which are slow; the stage budgets start from all but the first."""
        cycles = self._settings["warm_up_cycles"]
        if not cycles or not hasattr(self._planner, "warm_up"):
            return
        for stage_ms in self._planner.warm_up(cycles)[1:]:
            self._budgets.note(stage_ms)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Opens the inputs and starts the worker; on failure stays inactive and can be retried."""
        try:
            self._activate()
        except Exception as error:  # such as an unknown quality of service: logged, can be retried
            self.get_logger().error(f"activate failed: {error}\n{traceback.format_exc()}")
            self._worker = None
            self._inputs.close()
            return TransitionCallbackReturn.FAILURE
        result = super().on_activate(state)
        self._worker.start()
        return result

    def _activate(self) -> None:
        capacities = {camera: FRAMES_WAITING for camera in self._cameras} | {ODOMETRY: ODOMETRY_WAITING}
        self._inbox = Inbox(capacities)
        self._inputs.open(self._cameras, self._settings, self._inbox)
        self._health.reset("WAITING", "waiting for the first observation")
        monitors, policy = self._inputs.monitors, _input_policy(self._settings)
        self._perception = Perception(self._cameras, self._settings["cycle_hz"], monitors, policy)
        self._worker = PlanningWorker(
            self, self._planner, self._inbox, self._perception, self._outputs, monitors, self._health,
            self._settings, self._budgets, self._publish_diagnostics_on_change,
        )

    @property
    def messages_received(self) -> int:
        """Number of messages that reached the inputs since activation."""
        return sum(monitor.received for monitor in self._inputs.monitors.values())

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Ends the worker, which finishes the plan in progress, then closes the inputs."""
        if not self._end_work(WORKER_END_S):
            self.get_logger().error(f"the plan in hand is not done after {WORKER_END_S:g} s; it will be discarded")
        self._health.reset("INACTIVE", "not active")
        return super().on_deactivate(state)

    def _end_work(self, timeout_s: float) -> bool:
        worker, self._worker = self._worker, None
        ended = worker.close(timeout_s) if worker is not None else True
        self._inputs.close()
        return ended

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Frees the model and the publishers."""
        self._free()
        self._health.model = Health("model", WARN, "UNCONFIGURED", "not configured")
        return super().on_cleanup(state)

    def _free(self) -> None:
        self._planner = None
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """From any state: ends the work and frees everything."""
        self._end_work(WORKER_END_S)
        self._free()
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After a transition raised: returns to unconfigured, from where it can be retried."""
        self.get_logger().error(f"transition from {state.label} failed; the node is unconfigured again")
        self.on_shutdown(state)
        return TransitionCallbackReturn.SUCCESS

    def autostart(self) -> None:
        """Configures and activates if the parameter says so; a failure leaves the node retryable."""
        build_engines_and_exit(self, read(self, PARAMETERS))
        if read(self, PARAMETERS)["autostart"]:
            if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                self.trigger_activate()

    def close(self) -> bool:
        """Ends the worker before the context goes, so that nothing is published on a dead node.

        Returns False if the plan in progress takes too long to wait for: the process has to end without it.
        """
        return self._end_work(CLOSING_S)

    def destroy_node(self) -> None:
        """The same as `close`, for code that makes nodes itself."""
        self._end_work(CLOSING_S)
        super().destroy_node()

    def _on_clock_back(self, jump) -> None:
        seconds = jump.delta.nanoseconds / 1e9
        self.get_logger().warning(f"the clock went back {-seconds:.3f} s: history starts anew")
        if self._inbox is not None:
            self._inbox.reset()

    # Diagnostics

    def _healths(self, shown: bool = False) -> list[Health]:
        inputs = [monitor.health(shown) for monitor in list(self._inputs.monitors.values())]
        own = self._health.healths(self._settings["deadline_ms"], self._settings["deadline_policy"])
        return [*own, *inputs]

    def _publish_diagnostics(self) -> None:
        with self._diagnostics_lock:
            healths = self._healths(shown=True)
            self._diagnostics_signature = signature(healths)
            now = self.get_clock().now().to_msg()
            name = self.get_fully_qualified_name().lstrip("/")
            self._diagnostics.publish(diagnostic_array(now, name, healths))

    def _publish_diagnostics_on_change(self) -> None:
        """Checks at most every LOOK_EVERY_S: at 200 messages a second, checking would be most of the work."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now
        if signature(self._healths()) != self._diagnostics_signature:
            self._publish_diagnostics()


def _input_policy(settings: dict) -> InputPolicy:
    return InputPolicy(
        settings["camera_policy"],
        settings["camera_wait_s"],
        settings["camera_max_age_s"],
        tuple(filter(None, map(str.strip, settings["odometry_frames"].split(",")))),
        settings["odometry_max_std_m"],
    )


def _ordered_cameras(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The model's cameras. Raises InputError if a list is given that does not match them."""
    if wanted and sorted(wanted) != sorted(known):
        raise InputError(
            f"parameter cameras: {', '.join(wanted)}; this model was made for {', '.join(known)}"
        )
    return tuple(known)


def main(arguments: list[str] | None = None) -> int:
    return run_node(PlannerNode, arguments, PlannerNode.autostart)


if __name__ == "__main__":
    sys.exit(main())
