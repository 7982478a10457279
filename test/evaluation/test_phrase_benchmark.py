import pytest

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.phrase_benchmark import count_passes, measure_phrases, words_as_tokens


def test_words_and_marks_are_tokens_and_repeats_are_kept():
    first, again = words_as_tokens(["Stop, since the light is red.", "Stop, since the light is red."])
    assert first == again and len(first) == 9 and first[-1] == 0


@pytest.mark.parametrize(
    "tree, passes, guessed",
    [
        (TokenTree.empty(), 5, 5),  # a token a pass
        (TokenTree.chain([2, 3]), 3, 5),  # 1 | 2 3, 4, 5; nothing agrees before the first word is known
    ],
)
def test_passes_of_a_sentence(tree, passes, guessed):
    def propose(written):
        return tree if list(written) == [1] else TokenTree.empty()

    assert count_passes((1, 2, 3, 4, 5), propose) == passes
    assert count_passes((1, 2, 3, 4, 5), lambda written: TokenTree.empty(), guess_first=True) == 5


def test_guessing_the_first_word_counts_the_own_token_behind_the_proposal():
    assert count_passes((1, 2, 3, 4), lambda written: TokenTree.chain([1, 2, 3]) if not written else TokenTree.empty(),
                        guess_first=True) == 1


def test_wider_trees_write_more_a_pass():
    colours, things = ("red", "blue", "green", "white", "black"), ("car", "van", "truck", "bus")
    lines = [f"Slow down because the {c} {t} ahead brakes." for c in colours for t in things] * 5
    chain, narrow, wide, widest = measure_phrases(words_as_tokens(lines))
    assert 1 < chain.accepted_length <= narrow.accepted_length < wide.accepted_length <= widest.accepted_length
    assert len(chain.by_split) == 5 and chain.tokens == 5 * 20 * 10


def test_too_few_sentences():
    with pytest.raises(InputError, match="at least 10"):
        measure_phrases(words_as_tokens(["Stop."] * 3))
