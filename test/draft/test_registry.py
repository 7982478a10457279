import pytest

from specdrive_ros.draft.registry import available, check_names, draft_path, own_draft, rope_of
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings


def test_names_of_a_company_come_cheap_ones_first():
    assert check_names("none") == () and check_names("phrasebook") == ("phrasebook",)
    assert check_names("phrasebook+carryover") == ("carryover", "phrasebook")
    assert check_names("dflash-mirror+phrasebook+eagle3") == ("phrasebook", "eagle3-flat", "dflash-mirror")


def test_rotary_setting_of_a_name():
    specs = ("none", "carryover", "dflash", "carryover+eagle3-mirror", "eagle3+dflash-mirror")
    assert [rope_of(spec) for spec in specs] == [None, None, "flat", "mirror", None]


def test_what_a_folder_has_of_the_drafts_its_settings_name(tmp_path):
    wanted = "carryover+phrasebook+dflash"
    assert available("none", tmp_path) == "none" and available("phrasebook", tmp_path) == "none"
    assert available(wanted, tmp_path) == "carryover"
    draft_path(tmp_path, "dflash-flat").mkdir(parents=True)
    assert available(wanted, tmp_path) == "carryover+dflash-flat"
    draft_path(tmp_path, "phrasebook").write_bytes(b"")
    assert available(wanted, tmp_path) == "carryover+phrasebook+dflash-flat"


@pytest.mark.parametrize("wrong",
                         ["", "fast", "none+carryover", "carryover+carryover", "carryover+", "dflash+dflash-flat"])
def test_names_that_are_none(wrong):
    with pytest.raises(InputError, match="no such draft; choose none or some of carryover, phrasebook"):
        check_names(wrong)


def test_a_name_that_is_none_is_said_to_be_where_it_was_written(tmp_path):
    with pytest.raises(InputError, match="the model's settings, draft: fast: no such draft"):
        own_draft(ModelSettings(tmp_path, draft="fast"))
