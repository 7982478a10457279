"""Two processes exchange camera images larger than Fast DDS's default segment, with our profile."""

import pytest

pytest.importorskip("sensor_msgs.msg")
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402

IMAGES = 30
SENDER = f"""
import array, rclpy
from sensor_msgs.msg import Image
from specdrive_ros.ros import qos
rclpy.init()
node = rclpy.create_node("camera")
publisher = node.create_publisher(Image, "/image", qos.output())
while not publisher.get_subscription_count():
    rclpy.spin_once(node, timeout_sec=0.05)
image = Image(height=600, width=800, encoding="rgb8", step=2400, data=array.array("B", bytes(1_440_000)))
sent = 0
def send():
    global sent
    image.header.stamp.sec = sent
    publisher.publish(image)
    sent += 1
node.create_timer(0.1, send)
while sent < {IMAGES}:
    rclpy.spin_once(node, timeout_sec=0.5)
publisher.wait_for_all_acked(rclpy.duration.Duration(seconds=5))
rclpy.spin(node)
"""


def test_large_images_arrive_completely_and_best_effort(graph):
    received = []
    graph.listener().create_subscription(Image, "/image", received.append, qos.image_input())
    sender = graph.start("-c", SENDER)
    assert graph.spin_until(lambda: len(received) >= IMAGES or sender.poll() is not None, 20.0)
    assert [image.header.stamp.sec for image in received] == list(range(IMAGES))
    assert len(received[-1].data) == 1_440_000
