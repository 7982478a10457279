"""Mini's tokenizer: a word is a token, and every text survives the round trip."""

from hypothesis import given
from hypothesis import strategies as st

from specdrive_ros.training.vocabulary import QWEN_ADDED_TOKENS, train_base_tokenizer

TEXTS = ["Slow down since the traffic light ahead is red.", "Keep lane since the road ahead is clear."]
TOKENIZER = train_base_tokenizer(TEXTS)


def test_each_word_of_the_corpus_is_one_token():
    for text in TEXTS:
        assert len(TOKENIZER.encode(text).ids) == len(text.split()) + 1  # the full stop


def test_added_tokens_follow_the_vocabulary_in_qwens_order():
    ids = [TOKENIZER.token_to_id(token) for token in QWEN_ADDED_TOKENS]
    assert ids == list(range(ids[0], ids[0] + len(QWEN_ADDED_TOKENS)))
    assert ids[-1] == TOKENIZER.get_vocab_size() - 1


def test_same_corpus_same_tokenizer():
    assert train_base_tokenizer(TEXTS).to_str() == TOKENIZER.to_str()


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=40))
def test_any_text_survives(text):
    normal = TOKENIZER.normalizer.normalize_str(text)
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == normal
