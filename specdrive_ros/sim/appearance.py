"""How things look beyond a scene's random choices: shades of paint and clothing, tints, building styles.

Training only sees `TRAIN`. `HELD_OUT` is for testing: the same colour names in other shades, other streets, other
proportions. Only the look differs; how a scene plays out does not.
"""

from dataclasses import dataclass, field

from specdrive_ros.errors import InputError

RGB = tuple[float, float, float]
PLAIN: RGB = (1.0, 1.0, 1.0)

PAINT: dict[str, RGB] = {
    "white": (232, 232, 228),
    "black": (34, 34, 38),
    "red": (176, 26, 30),
    "blue": (34, 70, 178),
    "yellow": (228, 188, 30),
}


@dataclass(frozen=True)
class Proportions:
    """Proportions of a vehicle's body: height as a factor, shoulder and cabin as shares of height and length."""

    height: float = 1.0
    car_shoulder: float = 0.58
    cabin_rear: float = -0.36
    cabin_front: float = 0.22
    van_shoulder: float = 0.45
    van_front: float = 0.36


@dataclass(frozen=True)
class Appearance:
    """Colours 0 to 255; tints are factors; houses: length, width and height as factors."""

    name: str
    paint: dict[str, RGB] = field(default_factory=lambda: PAINT)
    clothing: dict[str, RGB] = field(default_factory=lambda: PAINT)
    skin: RGB = (206, 160, 130)
    trousers: RGB = (40, 44, 60)
    road: RGB = PLAIN
    ground: RGB = PLAIN
    walls: RGB = PLAIN
    leaves: RGB = PLAIN
    sky: RGB = PLAIN
    houses: RGB = PLAIN
    proportions: Proportions = Proportions()


TRAIN = Appearance("train")
HELD_OUT: tuple[Appearance, ...] = (
    Appearance(
        "autumn",
        paint={
            "white": (214, 218, 226),
            "black": (52, 48, 46),
            "red": (206, 48, 36),
            "blue": (66, 104, 200),
            "yellow": (240, 206, 84),
        },
        clothing={
            "white": (216, 212, 200),
            "black": (54, 50, 52),
            "red": (204, 52, 58),
            "blue": (70, 110, 204),
            "yellow": (236, 204, 78),
        },
        skin=(150, 106, 80),
        trousers=(88, 78, 62),
        road=(1.08, 1.0, 0.93),
        ground=(1.14, 0.98, 0.72),
        walls=(1.0, 0.86, 0.8),
        leaves=(2.3, 1.05, 0.6),
        sky=(1.0, 0.96, 0.9),
        houses=(0.8, 1.0, 1.5),
        proportions=Proportions(1.1, 0.54, -0.46, 0.2, 0.5, 0.42),
    ),
    Appearance(
        "coast",
        paint={
            "white": (246, 246, 246),
            "black": (18, 20, 28),
            "red": (148, 16, 42),
            "blue": (20, 48, 130),
            "yellow": (206, 160, 22),
        },
        clothing={
            "white": (246, 244, 240),
            "black": (20, 20, 24),
            "red": (150, 18, 36),
            "blue": (24, 54, 138),
            "yellow": (204, 166, 26),
        },
        skin=(228, 184, 160),
        trousers=(104, 100, 92),
        road=(0.86, 0.92, 1.02),
        ground=(1.2, 1.16, 1.05),
        walls=(1.15, 1.18, 1.24),
        leaves=(0.8, 1.1, 1.4),
        sky=(0.86, 1.0, 1.08),
        houses=(1.0, 1.0, 0.62),
        proportions=Proportions(0.92, 0.62, -0.3, 0.3, 0.42, 0.3),
    ),
    Appearance(
        "brick",
        paint={
            "white": (222, 214, 196),
            "black": (44, 40, 56),
            "red": (196, 34, 60),
            "blue": (40, 92, 214),
            "yellow": (248, 196, 56),
        },
        clothing={
            "white": (224, 218, 214),
            "black": (42, 40, 50),
            "red": (192, 36, 66),
            "blue": (46, 96, 214),
            "yellow": (246, 190, 50),
        },
        skin=(120, 84, 64),
        trousers=(30, 34, 36),
        road=(0.8, 0.78, 0.8),
        ground=(0.86, 0.94, 0.9),
        walls=(1.1, 0.72, 0.6),
        leaves=(0.7, 0.78, 0.7),
        sky=(0.92, 0.94, 1.0),
        houses=(0.7, 1.0, 1.9),
        proportions=Proportions(1.05, 0.6, -0.42, 0.3, 0.52, 0.36),
    ),
)
APPEARANCES = ("train", "held_out")


def appearance_of(name: str, seed: int) -> Appearance:
    """"train", or one of the held-out ones by seed. Raises InputError for another name."""
    if name not in APPEARANCES:
        raise InputError(f"no appearance {name!r}: it must be one of {', '.join(APPEARANCES)}")
    return TRAIN if name == "train" else HELD_OUT[seed % len(HELD_OUT)]
