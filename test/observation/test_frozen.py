import numpy as np

from specdrive_ros.observation.frozen import SAME_FRAMES, FrozenPicture

PICTURE = np.random.default_rng(0).integers(0, 255, (96, 160, 3), np.uint8)


def fed(pictures, speed_mps: float) -> list[bool]:
    frozen = FrozenPicture()
    return [frozen.note(picture, speed_mps) for picture in pictures]


def test_the_same_picture_while_the_car_moves():
    assert fed([PICTURE] * (SAME_FRAMES + 2), 5.0) == [False] * SAME_FRAMES + [True] * 2


def test_a_standing_car_sees_the_same():
    assert not any(fed([PICTURE] * 50, 0.1))


def test_one_new_row_is_a_new_picture():
    pictures = [PICTURE.copy() for _ in range(50)]
    for row, picture in enumerate(pictures):
        picture[::6, row] = row
    assert not any(fed(pictures, 5.0))


def test_it_thaws():
    assert fed([PICTURE] * 8 + [255 - PICTURE], 5.0)[-1] is False


def test_the_picture_may_be_reused_by_the_sender():
    frozen, picture = FrozenPicture(), PICTURE.copy()
    found = []
    for value in range(10):
        picture[:] = value
        found.append(frozen.note(picture, 5.0))
    assert not any(found)
