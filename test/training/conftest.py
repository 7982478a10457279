"""A handful of driving scenes and a very small target with chance weights, for drafts to learn from."""

import pytest


@pytest.fixture(scope="session")
def data(tiny_scenes):
    return tiny_scenes


@pytest.fixture(scope="session")
def target(tiny_target):
    return tiny_target
