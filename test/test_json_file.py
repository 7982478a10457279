import pytest

from specdrive_ros.json_file import parse_json


def test_what_stands_in_it():
    assert parse_json('{"a": [1, "ü"]}') == parse_json(b'{"a": [1, "\\u00fc"]}') == {"a": [1, "ü"]}


@pytest.mark.parametrize("text", ["", "{", b"\xff\xfe\x00", "[" * 100_000, '{"a":' * 100_000])
def test_whatever_is_none_is_one_kind_of_error(text):
    with pytest.raises(ValueError):
        parse_json(text)
