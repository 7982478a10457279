import pytest

from specdrive_ros.draft.registry import check_names
from specdrive_ros.errors import InputError


def test_names_of_a_company_come_cheap_ones_first():
    assert check_names("none") == () and check_names("phrasebook") == ("phrasebook",)
    assert check_names("phrasebook+carryover") == ("carryover", "phrasebook")


@pytest.mark.parametrize("wrong", ["", "fast", "none+carryover", "carryover+carryover", "carryover+"])
def test_names_that_are_none(wrong):
    with pytest.raises(InputError, match="no such draft; choose none or some of carryover, phrasebook"):
        check_names(wrong)
