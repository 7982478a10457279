"""`planner`: cameras and odometry in, reasoning and trajectory out, as a lifecycle node.

A shell around `specdrive_ros.cycle`. The constructor declares, configure loads the model and makes the
publishers, activate opens the inputs and starts the worker; deactivate and cleanup undo that in
reverse. Callbacks only leave messages in the inbox; the worker alone decodes, infers and publishes.
Does not know what the model is.
"""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Protocol

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry, Path
from rclpy.clock import Clock, ClockType, JumpThreshold
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_msgs.msg import String

from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.msg import CycleStats, Reasoning, Trajectory
from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Refusal
from specdrive_ros.plan import Plan
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import (
    duration,
    duration_from_ms,
    nanoseconds,
    path_message,
    reasoning_message,
    set_stages,
    trajectory_message,
)
from specdrive_ros.ros.decision import Decision, decide
from specdrive_ros.ros.diagnostics import ERROR, OK, WARN, Health, InputMonitor, diagnostic_array, signature
from specdrive_ros.ros.inbox import Batch, Inbox
from specdrive_ros.ros.parameters import ParameterSpec, declare, read
from specdrive_ros.ros.perception import MESSAGE_OF_TRANSPORT, ODOMETRY, WAITING, Perceived, Perception
from specdrive_ros.ros.run_node import run_node

DIAGNOSTICS_PERIOD_S = 1.0
WORKER_END_S = 5.0
FRAMES_WAITING, ODOMETRY_WAITING = 8, 400
TOPIC_SUFFIX = {"raw": "image", "compressed": "image/compressed"}
PARAMETERS = (
    ParameterSpec("model", "mini", "name or folder of the checkpoint"),
    ParameterSpec("runtime", "onnxruntime", "where the networks run", choices=("onnxruntime", "torch", "tensorrt")),
    ParameterSpec("build_engines_only", "", "a build profile's name or file: build the model's engines for it and exit"),
    ParameterSpec("draft", "none", "what speeds the reasoning up: none, or drafts joined by +"),
    ParameterSpec("cameras", [], "cameras in the prompt's order, empty for the model's own"),
    ParameterSpec("image_transport", "raw", "raw Image or CompressedImage", choices=tuple(TOPIC_SUFFIX)),
    ParameterSpec("cycle_hz", 10.0, "most planning cycles a second", 0.1, 100.0),
    ParameterSpec("deadline_ms", 100.0, "limit from camera message in to trajectory out", 1.0, 60_000.0),
    ParameterSpec("max_new_tokens", 0, "longest reasoning in tokens, 0 for the model's own limit", 0, 4096),
    ParameterSpec("seed", 0, "of the trajectory's noise", 0, 2**31 - 1),
    ParameterSpec("camera_stale_s", 0.5, "a camera silent for longer is an error", 0.05, 60.0),
    ParameterSpec("odometry_stale_s", 0.5, "odometry silent for longer is an error", 0.05, 60.0),
    ParameterSpec("autostart", False, "configure and activate without being asked"),
)


class Planner(Protocol):
    """What the node needs of a planner; `specdrive_ros.cycle.Planner` is one."""

    cameras: Sequence[str]

    def plan(self, observation: Observation) -> Plan: ...


def load_planner(settings: dict) -> Planner:
    """The planner of these settings. Raises InputError for a model that cannot be loaded."""
    from specdrive_ros.cycle import Planner as CyclePlanner

    limit = {"max_new_tokens": settings["max_new_tokens"]} if settings["max_new_tokens"] else {}
    return CyclePlanner.load(
        settings["model"],
        runtime=settings["runtime"],
        seed=settings["seed"],
        draft=settings["draft"],
        **limit,
    )


def build_engines_and_exit(node: LifecycleNode, settings: dict) -> None:
    """Where the settings ask for it: builds and ends the process, 0 done, 1 the work failed; InputError is raised."""
    if not settings["build_engines_only"]:
        return
    from specdrive_ros.engine.building import build_for_model

    log = node.get_logger().info
    try:
        outcomes = build_for_model(settings["model"], settings["build_engines_only"], log)
    except WorkFailed as error:
        node.get_logger().error(f"engines: {error}")
        raise SystemExit(1) from None
    log(f"engines: {sum(one.built for one in outcomes)} built, {sum(not one.built for one in outcomes)} up to date")
    raise SystemExit(0)


class PlannerNode(LifecycleNode):
    """The planner as a node. `load` makes the planner from the settings; tests give a small one."""

    def __init__(self, load: Callable[[dict], Planner] = load_planner, **node_arguments):
        super().__init__("planner", **node_arguments)
        declare(self, PARAMETERS)
        self._load = load
        self._planner: Planner | None = None
        self._worker: Thread | None = None
        self._inbox: Inbox | None = None
        self._monitors: dict[str, InputMonitor] = {}
        self._subscriptions_open: list = []
        self._outputs: dict[str, object] = {}
        self._cycle_number = 0
        self._model_health = Health("model", WARN, "UNCONFIGURED", "not configured")
        self._cycle_health = Health("cycle", OK, "INACTIVE", "not active")
        self._diagnostics_lock = Lock()
        self._diagnostics_signature: tuple = ()
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", qos.output())
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(DIAGNOSTICS_PERIOD_S, self._publish_diagnostics, clock=self._steady)
        backwards = JumpThreshold(
            min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=False
        )
        clock = self.get_clock()
        self._jump_handle = clock.create_jump_callback(backwards, post_callback=self._on_clock_back)

    # Life: each stage undoes in reverse what its opposite did

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Reads the parameters, loads the model, makes the publishers; on failure stays unconfigured."""
        try:
            self._configure()
        except Exception as error:  # whatever a model's loading raises: logged, retryable
            self.get_logger().error(f"configure failed: {error}\n{traceback.format_exc()}")
            self._planner = None
            self._destroy_outputs()
            self._model_health = Health("model", ERROR, "CONFIGURE_FAILED", f"configure failed: {error}")
            self._publish_diagnostics()
            return TransitionCallbackReturn.FAILURE
        self._publish_diagnostics()
        return super().on_configure(state)

    def _configure(self) -> None:
        self._settings = read(self, PARAMETERS)
        self._planner = self._load(self._settings)
        self._cameras = _ordered_cameras(self._settings["cameras"], self._planner.cameras)
        for name, kind in _OUTPUT_TYPES.items():
            self._outputs[name] = self.create_lifecycle_publisher(kind, f"~/output/{name}", qos.output())
        text = f"{self._settings['model']} on {self._settings['runtime']}"
        values = {"cameras": ", ".join(self._cameras), "seed": self._settings["seed"]}
        self._model_health = Health("model", OK, "", text, values)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Opens the inputs and starts the worker."""
        self._cycle_number = 0
        capacities = {camera: FRAMES_WAITING for camera in self._cameras} | {ODOMETRY: ODOMETRY_WAITING}
        self._inbox = Inbox(capacities)
        self._open_inputs()
        self._cycle_health = Health("cycle", OK, "WAITING", "waiting for the first observation")
        perception = Perception(self._cameras, self._settings["cycle_hz"], self._monitors)
        arguments = (self._inbox, perception)
        self._worker = Thread(target=self._work, args=arguments, name="planner worker", daemon=True)
        result = super().on_activate(state)
        self._worker.start()
        return result

    def _open_inputs(self) -> None:
        transport = self._settings["image_transport"]
        for camera in self._cameras:
            topic = f"~/input/{camera}/{TOPIC_SUFFIX[transport]}"
            stale_s = self._settings["camera_stale_s"]
            self._open_input(camera, MESSAGE_OF_TRANSPORT[transport], topic, qos.image_input(), stale_s)
        stale_s = self._settings["odometry_stale_s"]
        self._open_input(ODOMETRY, Odometry, "~/input/odometry", qos.odometry_input(), stale_s)

    @property
    def messages_received(self) -> int:
        """Messages that reached the inputs since activation."""
        return sum(monitor.received for monitor in self._monitors.values())

    def _open_input(self, name: str, kind: type, topic: str, profile, stale_s: float) -> None:
        inbox = self._inbox
        monitor = self._monitors[name] = InputMonitor(name, self.resolve_topic_name(topic), stale_s)

        def take(message) -> None:
            stamp_ns = nanoseconds(message.header.stamp)
            monitor.note_arrival(overflowed=inbox.put(name, message, stamp_ns))

        subscription = self.create_subscription(
            kind, topic, take, profile, qos_overriding_options=qos.overridable()
        )
        self._subscriptions_open.append(subscription)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Ends the worker, which finishes the plan in hand, then closes the inputs."""
        self._end_work()
        self._cycle_health = Health("cycle", OK, "INACTIVE", "not active")
        return super().on_deactivate(state)

    def _end_work(self) -> None:
        if self._worker is not None:
            self._inbox.close()
            self._worker.join(WORKER_END_S)
            self._worker = None
        for subscription in self._subscriptions_open:
            self.destroy_subscription(subscription)
        self._subscriptions_open.clear()
        self._monitors.clear()

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Frees the model and the publishers."""
        self._planner = None
        self._destroy_outputs()
        self._model_health = Health("model", WARN, "UNCONFIGURED", "not configured")
        return super().on_cleanup(state)

    def _destroy_outputs(self) -> None:
        for publisher in self._outputs.values():
            self.destroy_lifecycle_publisher(publisher)
        self._outputs.clear()

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """From any state: ends the work and frees everything."""
        self._end_work()
        self._planner = None
        self._destroy_outputs()
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """A transition raised: back to unconfigured, from where it can be tried again."""
        self.get_logger().error(f"transition from {state.label} failed; the node is unconfigured again")
        self.on_shutdown(state)
        return TransitionCallbackReturn.SUCCESS

    def autostart(self) -> None:
        """Configures and activates where the parameter says so; a failure leaves the node retryable."""
        build_engines_and_exit(self, read(self, PARAMETERS))
        if read(self, PARAMETERS)["autostart"]:
            if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                self.trigger_activate()

    def close(self) -> None:
        """Ends the worker before the context goes, so that no publish meets a dead node."""
        self._end_work()

    def _on_clock_back(self, jump) -> None:
        seconds = jump.delta.nanoseconds / 1e9
        self.get_logger().warning(f"the clock went back {-seconds:.3f} s: history starts anew")
        if self._inbox is not None:
            self._inbox.reset()

    # The worker

    def _work(self, inbox: Inbox, perception: Perception) -> None:
        """Until the inbox closes: take what came, plan on the newest observation, publish."""
        while (batch := inbox.take()) is not None:
            try:
                self._take_in(perception, batch)
            except Exception as error:  # a planner that dies is worse than a cycle that is lost
                self.get_logger().error(f"cycle lost: {error}\n{traceback.format_exc()}")
                self._cycle_health = Health("cycle", ERROR, "CYCLE_LOST", f"cycle lost: {error}")
            self._publish_diagnostics_on_change()

    def _take_in(self, perception: Perception, batch: Batch) -> None:
        perception.absorb(batch)
        answer = perception.observation()
        if isinstance(answer, Refusal):
            self._note_refusal(answer)
        elif answer is not None:
            self._run_cycle(answer, perception)

    def _note_refusal(self, refusal: Refusal) -> None:
        if refusal.reason in WAITING:
            return
        self._cycle_health = Health("cycle", WARN, str(refusal.reason), f"no observation: {refusal.text}")

    def _run_cycle(self, perceived: Perceived, perception: Perception) -> None:
        begun_ns, now_ns = time.monotonic_ns(), self.get_clock().now().nanoseconds
        decision = decide(self._planner, perceived.observation)
        stats = CycleStats(
            cycle=self._cycle_number,
            deadline=duration_from_ms(self._settings["deadline_ms"]),
            input_names=list(perceived.newest_ns),
            input_ages=[duration(now_ns - stamp_ns) for stamp_ns in perceived.newest_ns.values()],
            fallback_reason=decision.reason,
            fallback_text=decision.text,
            dropped_observations=perception.dropped,
        )
        stage_ms = dict(decision.plan.stage_ms)
        stage_ms["wait"] = max(0.0, (begun_ns - perceived.arrived_ns) / 1e6 - perceived.decode_ms)
        stage_ms["decode"] = perceived.decode_ms
        self._publish(decision, perceived, stats, stage_ms)
        self._cycle_number += 1
        self._note_cycle(decision, stats)

    def _publish(self, decision: Decision, perceived: Perceived, stats: CycleStats, stage_ms: dict) -> None:
        publishing_ns = time.monotonic_ns()
        trajectory = trajectory_message(decision.plan, perceived.frame_id, decision.source)
        self._outputs["trajectory"].publish(trajectory)
        published_ns = time.monotonic_ns()
        stage_ms["publish"] = (published_ns - publishing_ns) / 1e6
        stage_ms["total"] = (published_ns - perceived.arrived_ns) / 1e6
        stats.header = trajectory.header
        stats.late = stage_ms["total"] > self._settings["deadline_ms"]
        set_stages(stats, stage_ms)
        self._outputs["path"].publish(path_message(trajectory))
        if decision.source == Trajectory.PLANNED:
            reasoning = reasoning_message(decision.plan, perceived.frame_id)
            self._outputs["reasoning"].publish(reasoning)
            self._outputs["reasoning_text"].publish(String(data=reasoning.text))
        self._outputs["cycle_stats"].publish(stats)

    def _note_cycle(self, decision: Decision, stats: CycleStats) -> None:
        values = {"cycle": stats.cycle, "dropped": stats.dropped_observations}
        if decision.text:
            self.get_logger().warning(decision.text, throttle_duration_sec=1.0)
            self._cycle_health = Health("cycle", ERROR, f"FALLBACK_{decision.reason}", decision.text, values)
        elif stats.late:
            text = f"over the deadline of {self._settings['deadline_ms']:g} ms"
            self._cycle_health = Health("cycle", WARN, "LATE", text, values)
        else:
            self._cycle_health = Health("cycle", OK, "", "planning", values)

    # Diagnostics

    def _healths(self) -> list[Health]:
        inputs = [monitor.health() for monitor in list(self._monitors.values())]
        return [self._model_health, self._cycle_health, *inputs]

    def _publish_diagnostics(self) -> None:
        with self._diagnostics_lock:
            healths = self._healths()
            self._diagnostics_signature = signature(healths)
            now = self.get_clock().now().to_msg()
            self._diagnostics.publish(diagnostic_array(now, self.get_name(), healths))

    def _publish_diagnostics_on_change(self) -> None:
        if signature(self._healths()) != self._diagnostics_signature:
            self._publish_diagnostics()


_OUTPUT_TYPES = {
    "trajectory": Trajectory,
    "path": Path,
    "reasoning": Reasoning,
    "reasoning_text": String,
    "cycle_stats": CycleStats,
}


def _ordered_cameras(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The model's cameras. Raises InputError where a list is given that is not theirs."""
    if wanted and sorted(wanted) != sorted(known):
        raise InputError(
            f"parameter cameras: {', '.join(wanted)}; this model was made for {', '.join(known)}"
        )
    return tuple(known)


def main(arguments: list[str] | None = None) -> int:
    return run_node(PlannerNode, arguments, PlannerNode.autostart)


if __name__ == "__main__":
    sys.exit(main())
