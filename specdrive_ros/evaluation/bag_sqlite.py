"""Reads the messages of an SQLite recording in order of recording, as far as the file is readable."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from specdrive_ros.evaluation.bag_messages import RawMessage, canonical_type, plain_data

SQLITE_MAGIC = b"SQLite format 3\0"


def read_sqlite(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    """The messages; if the file breaks off, `damage` gets a line."""
    wal = file.with_name(file.name + "-wal")  # a killed recorder's last transactions
    mode = "mode=ro" if wal.is_file() and wal.stat().st_size else "mode=ro&immutable=1"
    try:
        database = sqlite3.connect(f"file:{quote(str(file.resolve()))}?{mode}", uri=True)
        try:
            rows = database.execute("SELECT id, name, type, serialization_format FROM topics")
            topics = {key: (name, canonical_type(kind), form) for key, name, kind, form in rows}
            rows = database.execute("SELECT topic_id, timestamp, data FROM messages ORDER BY id")
            for topic, time_ns, data in rows:
                if topic in topics:
                    yield RawMessage(*topics[topic], time_ns, plain_data(data))
        finally:
            database.close()
    except sqlite3.Error as error:
        damage.append(f"{file.name} is damaged ({error})")
