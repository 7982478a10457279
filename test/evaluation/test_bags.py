"""Bags of three writers (rosbag2's own, rosbags, mcap), whole and broken."""

import shutil
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import CompressionFormat, CompressionMode

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.bags import NotABag, TopicAbsent, WrongType, open_bag

BASE = 1_000_000_000_000
ODOMETRY = {"nav_msgs/msg/Odometry"}


def stamps(bag, *topics):
    return [(message.stamp_ns - BASE) // 10**6 for message in bag.messages(topics)]


@pytest.fixture
def rows(ros):
    """Odometry stamped 0, 10 … 90 ms and text without a stamp, recorded 5 ms later."""
    stamps_ns = [BASE + k * 10**7 for k in range(10)]
    rows = [("/odom", at + 5 * 10**6, ros.odometry(at, x=float(k))) for k, at in enumerate(stamps_ns)]
    return rows + [("/said", BASE + 10**8, ros.text("hello"))]


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("compression", [None, "MESSAGE", "FILE", "STORAGE"])
def test_reads_what_was_written(write_bag, rows, storage, compression):
    if compression == "STORAGE" and storage == "sqlite3":
        pytest.skip("SQLite has no compression of its own")
    chosen = compression and (CompressionMode[compression], CompressionFormat.ZSTD)
    bag = open_bag(write_bag(rows, storage=storage, compression=chosen))
    assert [(t.name, t.type, t.count) for t in bag.topics] == [
        ("/odom", "nav_msgs/msg/Odometry", 10), ("/said", "std_msgs/msg/String", 1)]
    messages = list(bag.messages(["/odom", "/said"]))
    assert [m.message.pose.pose.position.x for m in messages[:-1]] == list(range(10))
    assert messages[-1].message.data == "hello" and messages[-1].stamp_ns == BASE + 10**8
    assert bag.damage == [] and bag.rejected == {}
    assert bag.span(["/odom"]) == (BASE, BASE + 9 * 10**7)


def test_order_is_that_of_the_header_stamps_whatever_the_recorder_did(write_bag, ros):
    sent = [40, 0, 20, 10, 30, 20]
    bag = open_bag(write_bag(
        [("/odom", BASE + k, ros.odometry(BASE + ms * 10**6, x=float(k))) for k, ms in enumerate(sent)]))
    assert stamps(bag, "/odom") == [0, 10, 20, 20, 30, 40]
    same = [m.message.pose.pose.position.x for m in bag.messages(["/odom"])][2:4]
    assert same == [2.0, 5.0]


def test_unset_stamps_are_left_out_or_replaced_by_the_time_of_recording(write_bag, ros):
    bag = open_bag(write_bag([("/odom", BASE + k * 10**6, ros.odometry(0 if k < 3 else BASE + k * 10**6))
                              for k in range(6)]))
    assert stamps(bag, "/odom") == [3, 4, 5] and bag.rejected == {"ZERO_STAMP": 3}
    bag = open_bag(write_bag([("/odom", BASE + k * 10**6, ros.odometry(0)) for k in range(6)], name="unset"))
    assert stamps(bag, "/odom") == [0, 1, 2, 3, 4, 5] and bag.rejected == {}


def test_a_single_file_and_a_folder_without_metadata(write_bag, rows):
    folder = write_bag(rows)
    (folder / "metadata.yaml").unlink()
    (file,) = folder.iterdir()
    for path in (folder, file, str(file)):
        assert len(stamps(open_bag(path), "/odom")) == 10


@pytest.mark.parametrize("text", ["rosbag2_bagfile_information: [", "[" * 100_000], ids=["open", "deep"])
def test_broken_metadata_is_not_needed(text, write_bag, rows):
    folder = write_bag(rows)
    (folder / "metadata.yaml").write_text(text)
    bag = open_bag(folder)
    assert len(stamps(bag, "/odom")) == 10 and "metadata.yaml" in bag.damage[0]


def test_a_missing_part_of_a_split_bag_is_said(write_bag, rows):
    folder = write_bag(rows)
    file = next(folder.glob("*.mcap"))
    metadata = (folder / "metadata.yaml").read_text()
    metadata = metadata.replace(f"- {file.name}", f"- {file.name}\n  - lost_1.mcap", 1)
    (folder / "metadata.yaml").write_text(metadata)
    bag = open_bag(folder)
    assert len(stamps(bag, "/odom")) == 10
    assert "lost_1.mcap named in metadata.yaml is missing" in bag.damage


def write_mcap(path, ros, **options):
    """100 messages in about ten chunks, as the mcap project's own writer writes them."""
    with path.open("wb") as stream:
        writer = McapWriter(stream, chunk_size=8000, **options)
        writer.start("ros2")
        schema = writer.register_schema("nav_msgs/msg/Odometry", "ros2msg", b"")
        channel = writer.register_channel("/odom", "cdr", schema)
        for k in range(100):
            data = bytes(ros.types.serialize_cdr(ros.odometry(BASE + k * 10**6), "nav_msgs/msg/Odometry"))
            writer.add_message(channel, BASE + k * 10**6, data, BASE + k * 10**6, k)
        writer.finish()


@pytest.mark.parametrize("compression", list(CompressionType))
@pytest.mark.parametrize("chunked", [True, False])
def test_a_cut_mcap_gives_what_is_before_the_cut(tmp_path, ros, compression, chunked):
    whole = tmp_path / "whole.mcap"
    write_mcap(whole, ros, compression=compression, use_chunking=chunked)
    assert len(stamps(open_bag(whole), "/odom")) == 100
    content, cut, seen = whole.read_bytes(), tmp_path / "cut.mcap", []
    for share in (0.3, 0.5, 0.7):
        cut.write_bytes(content[:int(len(content) * share)])
        bag = open_bag(cut)
        seen.append(len(stamps(bag, "/odom")))
        assert len(bag.damage) == 1 and "without its end mark" in bag.damage[0]
    assert 0 < seen[0] < seen[1] < seen[2] < 100


def test_a_chunk_with_a_wrong_checksum_is_left_out(tmp_path, ros):
    file = tmp_path / "bag.mcap"
    write_mcap(file, ros, compression=CompressionType.NONE)
    content = bytearray(file.read_bytes())
    content[content.index(b"base_link", len(content) // 3)] ^= 1
    file.write_bytes(content)
    bag = open_bag(file)
    assert bag.damage == ["bag.mcap has a chunk with a wrong checksum, left out"]
    assert 80 < len(stamps(bag, "/odom")) < 100


def test_what_does_not_decode_is_counted_and_skipped(write_bag, rows):
    file = next(write_bag(rows, storage="sqlite3").glob("*.db3"))
    with sqlite3.connect(file) as database:
        database.execute("UPDATE messages SET data = substr(data, 1, 60) WHERE id IN (2, 3)")
    database.close()
    bag = open_bag(file)
    assert len(stamps(bag, "/odom")) == 8 and bag.rejected == {"UNREADABLE": 2}


def test_a_recorder_that_was_killed_leaves_a_journal_that_counts(tmp_path, write_bag, rows):
    """SQLite in write-ahead mode: the newest messages are still in the -wal file."""
    file = next(write_bag(rows, storage="sqlite3").glob("*.db3"))
    database = sqlite3.connect(file)
    database.execute("PRAGMA journal_mode=WAL")
    columns = "topic_id, timestamp, data"
    database.execute(f"INSERT INTO messages ({columns}) SELECT {columns} FROM messages")
    database.commit()
    killed = tmp_path / "killed"
    killed.mkdir()
    for part in file.parent.glob("*.db3*"):
        shutil.copy(part, killed)
    database.close()
    assert len(stamps(open_bag(killed), "/odom")) == 20


def test_absent_and_wrong_topics_list_what_there_is(write_bag, rows):
    bag = open_bag(write_bag(rows))
    with pytest.raises(TopicAbsent, match=r"no topic /nope; it has /odom \(nav_msgs/msg/Odometry, 10\)"):
        bag.topic("/nope", ODOMETRY)
    with pytest.raises(WrongType, match="/said is std_msgs/msg/String; must be nav_msgs/msg/Odometry"):
        bag.topic("/said", ODOMETRY)
    assert bag.topic("/odom", ODOMETRY).count == 10


@pytest.mark.parametrize("content", [
    b"", b"#ROSBAG V2.0\n", b"plain text", b"\x89MCAP0\r\n", b"SQLite format 3\0rest"])
def test_what_is_no_bag_is_refused_in_one_line(tmp_path, content):
    file = tmp_path / "thing.mcap"
    file.write_bytes(content)
    with pytest.raises(NotABag) as refused:
        open_bag(file)
    assert str(file) in str(refused.value) and "\n" not in str(refused.value)


def test_absent_paths_and_empty_folders_are_refused(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(NotABag, match="must be a rosbag2 folder, .mcap or .db3"):
            open_bag(path)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(storage=st.sampled_from(["mcap", "sqlite3"]), place=st.floats(0, 1), rubbish=st.binary(max_size=30),
       cut=st.booleans())
def test_any_damage_gives_messages_or_one_line(write_bag, rows, tmp_path, storage, place, rubbish, cut):
    folder = tmp_path / storage
    if not folder.exists():
        write_bag(rows, name=storage, storage=storage)
    content = next(file for file in folder.iterdir() if file.suffix != ".yaml").read_bytes()
    offset = int(place * len(content))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content[:offset] + rubbish + (b"" if cut else content[offset + len(rubbish):]))
    try:
        bag = open_bag(damaged)
        assert len(list(bag.messages([topic.name for topic in bag.topics]))) <= 11
    except InputError as error:
        assert "\n" not in str(error)


# Recordings of others


@pytest.mark.parametrize("name, topic, count", [
    ("comma2k19_drive_mcap", "/odom", 1200),
    ("comma2k19_drive_sqlite3", "/odom", 1200),
    ("kitti_straight_mcap", "/camera/front/image/compressed", 51),
    ("broken/no_metadata_sqlite3", "/odom", 1200),
    ("rosbag2/split_sqlite3", "AAA", 804),
    ("rosbag2/zstd_messages_no_metadata", "/topic", 369),
    ("rosbag2/all_types_mcap", "/test/sensor_msgs/image", 2),
])
def test_recordings_are_read_whole(recording, name, topic, count):
    bag = open_bag(recording(name))
    messages = list(bag.messages([topic]))
    assert len(messages) == count and bag.rejected == {} and bag.damage == []
    assert [m.stamp_ns for m in messages] == sorted(m.stamp_ns for m in messages)


def test_a_truncated_recording_says_how_much_is_left(recording):
    bag = open_bag(recording("broken/truncated_mcap"))
    assert bag.damage[-1] == "93 of 153 recorded messages are readable"
    assert len(list(bag.messages([topic.name for topic in bag.topics]))) == 93


def test_an_empty_recording_is_refused(recording):
    with pytest.raises(NotABag, match=r"empty \(0 bytes\)"):
        open_bag(recording("broken/empty_db3"))


def test_an_unknown_serialization_is_skipped_and_named(recording):
    bag = open_bag(recording("rosbag2/wrong_serialization_mcap"))
    assert list(bag.messages(["/test_topic", "/array_topic"])) == [] and bag.rejected == {"UNREADABLE": 7}
    with pytest.raises(WrongType, match="serialized as 'wrong_format'; must be cdr"):
        bag.topic("/test_topic", {"test_msgs/msg/BasicTypes"})
