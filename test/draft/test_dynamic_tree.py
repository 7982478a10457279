import numpy as np

from specdrive_ros.draft.dynamic_tree import best_of_slots, grow, likeliest, log_softmax

WORDS = 5


def follow(random):
    """A language in which each token has its own distribution over the next."""
    table = log_softmax(random.standard_normal((WORDS, WORDS)).astype(np.float32) * 2)
    return table, lambda tokens, parents: table[tokens]


def test_the_likeliest_paths_are_found():
    """With as many beams as words the tree holds every path, so its best are the best there are."""
    table, expand = follow(np.random.default_rng(0))
    _, tokens, parents, scores = grow(table[0], expand, depth=1, top_k=WORDS).best(8)
    every = sorted([*table[0], *(table[0][:, None] + table).ravel()], reverse=True)
    np.testing.assert_allclose(np.sort(scores)[::-1], every[:8], rtol=1e-6)
    for token, parent, score in zip(tokens, parents, scores):
        path = table[0][token] if parent < 0 else scores[parent] + table[tokens[parent]][token]
        assert abs(path - score) < 1e-6


def test_a_parent_stands_before_its_child_even_at_equal_scores():
    """A draft that is certain gives log-probability 0 to a path and to its beginning."""
    certain = np.full(WORDS, -50.0, np.float32)
    certain[2] = 0
    candidates = grow(certain, lambda tokens, parents: np.tile(certain, (len(tokens), 1)), depth=3, top_k=2)
    for count in range(1, 9):
        _, tokens, parents, _ = candidates.best(count)
        assert (parents < np.arange(count)).all() and (parents >= -1).all()
    assert candidates.best(4)[1].tolist() == [2, 2, 2, 2]


def test_one_beam_is_a_chain():
    table, expand = follow(np.random.default_rng(1))
    _, tokens, parents, scores = grow(table[3], expand, depth=4, top_k=1).best(5)
    assert parents.tolist() == [-1, 0, 1, 2, 3]
    chain, token = [], 3
    for _ in range(5):
        token = int(table[token].argmax())
        chain.append(token)
    assert tokens.tolist() == chain and (np.diff(scores) < 0).all()


def test_more_beams_than_words():
    table, expand = follow(np.random.default_rng(2))
    assert len(grow(table[0], expand, depth=1, top_k=10).tokens) == WORDS + WORDS * WORDS
    assert likeliest(np.array([1.0, 3.0, 2.0]), 9).tolist() == [1, 2, 0]


def test_an_unsure_chain_stops():
    table, expand = follow(np.random.default_rng(1))
    whole = grow(table[3], expand, depth=4, top_k=1)
    for least, levels in ((-np.inf, 5), (float(whole.scores[1]), 3), (0.5, 1)):
        stopped = grow(table[3], expand, depth=4, top_k=1, least=least)
        np.testing.assert_array_equal(stopped.scores, whole.scores[:levels])


def test_nothing_grows_behind_the_end():
    """Beams that end take no children and are not asked; the others go on as without an end."""
    table, expand = follow(np.random.default_rng(4))
    asked = []

    def spy(tokens, parents):
        asked.extend(tokens.tolist())
        return expand(tokens, parents)

    for end in range(WORDS):
        asked.clear()
        found = grow(table[0], spy, depth=3, top_k=3, end=end)
        assert end not in asked and end in found.tokens
        assert end not in found.tokens[found.parents[found.parents >= 0]]
        for token, parent, score in zip(found.tokens, found.parents, found.scores):
            path = table[0][token] if parent < 0 else found.scores[parent] + table[found.tokens[parent]][token]
            assert abs(path - score) < 1e-5
    first = int(table[0].argmax())
    assert grow(table[0], expand, depth=3, top_k=1, end=first).tokens.tolist() == [first]


def test_slots_behind_the_end_are_left_out():
    slots = log_softmax(np.random.default_rng(5).standard_normal((4, WORDS)).astype(np.float32))
    end = int(slots[1].argmax())
    every = best_of_slots(slots, 999, WORDS, end)
    words, parents = every[0], every[1]
    assert end in words and end not in words[parents[parents >= 0]]
    assert len(words) == 5 + 4 * 5 + 4**2 * 5 + 4**3 * 5


def test_the_likeliest_tree_of_slots_is_the_likeliest_there_is():
    """Against every path of every length, the slots being independent."""
    slots = log_softmax(np.random.default_rng(3).standard_normal((3, WORDS)).astype(np.float32) * 2)
    every, level = {}, {(): 0.0}
    for row in slots:
        level = {(*path, word): score + row[word] for path, score in level.items() for word in range(WORDS)}
        every |= level
    words, parents, scores = best_of_slots(slots, 12, top_k=WORDS)
    paths = []
    for word, parent in zip(words.tolist(), parents.tolist()):
        paths.append((*(paths[parent] if parent >= 0 else ()), word))
    best = sorted(every.values(), reverse=True)[:12]
    np.testing.assert_allclose(scores, best, rtol=1e-5)
    np.testing.assert_allclose(scores, [every[path] for path in paths], rtol=1e-5)
    assert len(best_of_slots(slots, 0, 2)[0]) == len(best_of_slots(slots[:0], 5, 2)[0]) == 0
    assert len(best_of_slots(slots, 99, 2)[0]) == 2 + 4 + 8
