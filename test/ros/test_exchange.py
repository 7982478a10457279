"""Two processes exchange camera images larger than Fast DDS's default segment, with our profile."""

import pytest

pytest.importorskip("sensor_msgs.msg")
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from std_msgs.msg import UInt32  # noqa: E402

IMAGES = 30
SENDER = f"""
import array, rclpy
from sensor_msgs.msg import Image
from std_msgs.msg import UInt32
from specdrive_ros.ros import qos
rclpy.init()
node = rclpy.create_node("camera")
publisher = node.create_publisher(Image, "/image", qos.output())
image = Image(height=600, width=800, encoding="rgb8", step=2400, data=array.array("B", bytes(1_440_000)))
arrived = sent = 0
def note(message):
    global arrived
    arrived = max(arrived, message.data)
def send():
    global sent
    if arrived == sent < {IMAGES} or arrived == 0:  # the first again and again, until both ends have found each other
        image.header.stamp.sec = arrived
        publisher.publish(image)
        sent = arrived + 1
node.create_subscription(UInt32, "/arrived", note, qos.output())
node.create_timer(0.1, send)
rclpy.spin(node)
"""


def test_large_images_arrive_completely_and_best_effort(graph):
    """Each is sent once, when the one before has arrived: one that is lost is never made up for."""
    received, listener = [], graph.listener()
    arrived = listener.create_publisher(UInt32, "/arrived", qos.output())

    def take(image: Image) -> None:
        received.append(image)
        arrived.publish(UInt32(data=image.header.stamp.sec + 1))

    listener.create_subscription(Image, "/image", take, qos.deep(qos.image_input()))
    sender = graph.start("-c", SENDER)
    def over() -> bool:
        return received and received[-1].header.stamp.sec == IMAGES - 1 or sender.poll() is not None

    assert graph.spin_until(over)
    assert list(dict.fromkeys(image.header.stamp.sec for image in received)) == list(range(IMAGES))
    assert len(received[-1].data) == 1_440_000
