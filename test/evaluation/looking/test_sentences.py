import pytest

from specdrive_ros.evaluation.looking.sentences import Reading, read_sentence, slots_right, token_f1
from specdrive_ros.sim.phrases import PHRASES, fill

WORDS = {"thing": "a parked yellow van", "where": "about 20 m ahead", "colour": "red", "kind": "car", "stand": "stands",
         "side": "left", "back": "right", "off": "left", "turn": "right", "bend": "sharp", "place": "town",
         "signal": "yellow"}


class AnyWords(dict):
    """Slots of families that come later have words, too."""

    def __missing__(self, name):
        return f"some {name}"


@pytest.mark.parametrize("key", PHRASES, ids="/".join)
def test_every_phrase_is_read_back_with_its_decision_and_slots(key):
    for phrase in PHRASES[key]:
        text, _ = fill(phrase, AnyWords(WORDS))
        reading = read_sentence(text)
        assert (reading.decision, reading.cause) == key, text
        assert " ".join(reading.slots.values()) == " ".join(AnyWords(WORDS)[name] for name in reading.slots)
        for name in {"side", "back", "off"} & set(reading.slots):
            assert reading.slots[name] == WORDS[name]


@pytest.mark.parametrize("text", [
    "", "Stop.", "Keep distance to the black van about 2 vehicle has parked black van.",
    "Proceed through the intersection since the traffic light ahead is green. Stop.",
    "Speed up to the usual pace since the road ahead is", "<script>", "Slow down " * 500])
def test_what_is_of_no_phrase_has_no_reading(text):
    assert read_sentence(text) is None


def test_the_most_specific_phrase_wins():
    text = "Slow down since the red car far ahead is braking in our lane."
    assert read_sentence(text) == Reading("slow", "lead_braking",
                                          {"colour": "red", "kind": "car", "where": "far ahead"})


def test_token_f1():
    assert token_f1("a b c", "a b c") == 1.0
    assert token_f1("a b", "c d") == 0.0
    assert token_f1("a a b", "a b c") == pytest.approx(2 * 2 / 6), "a word counts as often as the label has it"
    assert token_f1("", "") == 1.0 and token_f1("", "a") == 0.0


LABEL = "Slow down since the red car far ahead is braking in our lane."
SPANS = [LABEL.index("red"), LABEL.index("car"), LABEL.index("far ahead"), LABEL.index("braking")]
SPANS = [(start, start + len(word)) for start, word in zip(SPANS, ("red", "car", "far ahead", "braking"))]


@pytest.mark.parametrize("answer, right", [
    (LABEL, 4),
    (LABEL.replace("red", "blue"), 3),
    (LABEL.replace("far ahead", "far and ahead"), 3),
    (LABEL.replace("far ahead", "close ahead"), 3),
    ("Reduce speed now because the lead red car far ahead is braking.", 4),
    ("Speed up to the usual pace since the road ahead is clear.", 0),
    ("The braking one in our lane is far off, the car red.", 1),
    ("", 0)])
def test_a_slot_is_right_when_its_words_are_where_the_label_has_them(answer, right):
    assert slots_right(answer, LABEL, SPANS) == right


def test_without_slots_none_is_right():
    assert slots_right(LABEL, LABEL, []) == 0
