"""Stage times from bounds, cycles from stages, and whether a deadline holds."""

import math
from dataclasses import replace

import pytest

from specdrive_ros.budget.cycle import CycleModel, Plan
from specdrive_ros.budget.device import Device, Fact, find_device, find_precision
from specdrive_ros.budget.memory import memory_of
from specdrive_ros.budget.roofline import Software, stage_time
from specdrive_ros.budget.shape import read_shape
from specdrive_ros.budget.work import Stages, Work
from specdrive_ros.errors import InputError

PERFECT = Software("perfect", 1.0, 1.0, 1.0, 1.0, 0.001)
SHAPE = read_shape("alpamayo-r1")


def device(gb_per_s=1000.0, tflops=100.0, memory=100.0):
    fact = lambda value: Fact(value, "https://example.org")  # noqa: E731
    rates = {"fp32": fact(tflops / 10), "fp16": fact(tflops), "int8": fact(2 * tflops)}
    return Device("made up", fact(memory), fact(gb_per_s), rates)


def model(at=None, precision="bf16", software=PERFECT):
    return CycleModel(SHAPE, at or device(), find_precision(precision), software)


@pytest.mark.parametrize(
    ("work", "ms", "binds"),
    [
        (Work(products=1e11, bytes=1e6), 1.0, "compute"),
        (Work(products=1e9, bytes=3e9), 3.0, "bandwidth"),
        (Work(products=1e9, bytes=1e6, layers=9), 0.01, "compute"),
        (Work(products=1e3, layers=2000), 0.002, "launch overhead"),
    ],
)
def test_the_longest_bound_is_the_time(work, ms, binds):
    time = stage_time(work, device(), find_precision("bf16"), PERFECT)
    assert (time.ms, time.binds) == (pytest.approx(ms), binds)
    assert time.ms == max(time.bounds_ms.values())


def test_shares_divide_what_they_are_shares_of():
    half = Software("half", 0.5, 0.25, 0.2, 2.0, 10)
    work = Work(products=1e12, bytes=1e9, layers=100, weights=1e12)
    bf16, int8, int4 = (stage_time(work, device(), find_precision(p), half).bounds_ms for p in ("bf16", "int8", "int4"))
    assert bf16 == pytest.approx({"compute": 40.0, "bandwidth": 2.0, "launch overhead": 1.0})
    assert int8["compute"] == pytest.approx(25.0) and int4["compute"] == pytest.approx(50.0)
    elsewhere = stage_time(Work(other=1e12), device(), find_precision("int4"), half)
    assert elsewhere.ms == pytest.approx(40.0)  # vision and action expert unpack nothing


def test_weights_are_unpacked_where_it_is_cheaper():
    """Few rows: inside the product. Many: before it, which costs the same however many rows there are."""
    software = Software("some", 0.5, 0.5, 0.5, 2.0, 0.001)
    works, int4 = Stages(SHAPE, find_precision("int4")), find_precision("int4")
    few, many, more = (stage_time(works.text(rows, 0, 1), device(), int4, software) for rows in (20, 2000, 4000))
    assert few.ms == pytest.approx(1e3 * works.text(20, 0, 1).products / (2 * 10e12))
    weights = works.text(2000, 0, 1).weights
    half = [stage_time(replace(works.text(rows, 0, 1), weights=0), device(), find_precision("fp16"), software).ms
            for rows in (2000, 4000)]  # fmt: skip
    for time, product in zip((many, more), half, strict=True):
        assert time.ms == pytest.approx(product + 1e3 * 4 * weights / 0.5e12)


def test_a_plain_cycle_is_the_sum_of_its_stages():
    budget = model().budget(Plan())
    (plain,) = budget.cycles
    stages = {name: stage.ms for name, stage in budget.stages.items()}
    assert plain.passes == 20 and plain.reasoning_ms == pytest.approx(20 * stages["verify"])
    fixed = sum(stages[one] for one in ("vision", "prefill", "action"))
    assert plain.cycle_ms == pytest.approx(fixed + plain.reasoning_ms)
    assert budget.fixed_ms == pytest.approx(plain.cycle_ms - plain.reasoning_ms)


@pytest.mark.parametrize("draft", ["phrasebook", "eagle3", "dflash"])
def test_reasoning_takes_tokens_over_length_passes(draft):
    budget = model().budget(Plan(draft, accepted=(3.0, 5.0, 7.0)))
    propose = budget.stages["draft"].ms if draft != "phrasebook" else 0.0
    for one in budget.cycles[1:]:
        assert one.passes == math.ceil(20 / one.accepted_length)
        assert one.reasoning_ms == pytest.approx(one.passes * (propose + budget.stages["verify"].ms))
    times = [one.cycle_ms for one in budget.cycles]
    assert times == sorted(times, reverse=True)


def test_a_proposal_whose_time_is_known():
    budget = model().budget(Plan("eagle3", (5.0,), draft_ms=2.5))
    assert budget.stages["draft"].ms == 2.5
    assert budget.cycles[-1].reasoning_ms == pytest.approx(4 * (2.5 + budget.stages["verify"].ms))


def test_carried_text_is_verified_in_the_prefill():
    plain, carried = model().budget(Plan()), model().budget(Plan("carryover", (20.0,)))
    assert carried.cycles[-1].passes == 0 and carried.cycles[-1].reasoning_ms == 0
    assert carried.stages["prefill"].ms > plain.stages["prefill"].ms
    assert carried.cycles[0].cycle_ms == pytest.approx(plain.cycles[0].cycle_ms)  # without a draft nothing is carried


def test_the_vision_cache_encodes_a_quarter():
    cached, all_frames = (model().budget(Plan(vision_cache=on)).stages["vision"] for on in (True, False))
    assert all_frames.bounds_ms["compute"] == pytest.approx(4 * cached.bounds_ms["compute"])


def test_the_least_length_that_holds():
    """Just below it the deadline is missed, from there on it is kept."""
    at = model()
    probe = at.budget(Plan("dflash", (4.0,)))
    deadline = probe.cycles[-1].cycle_ms + 0.01
    least = at.budget(Plan("dflash", (4.0,), deadline_ms=deadline)).least_length
    assert least == 4.0
    shorter, enough = at.budget(Plan("dflash", (3.9, 4.0), deadline_ms=deadline)).cycles[1:]
    assert enough.cycle_ms <= deadline < shorter.cycle_ms


def test_no_length_is_enough_where_the_rest_is_too_long():
    budget = model().budget(Plan("dflash", (7.4,), deadline_ms=1.0))
    assert budget.least_length is None and budget.fixed_ms > 1.0


@pytest.mark.parametrize(
    ("at", "binds"),
    [
        (device(gb_per_s=1e6), "compute"),
        (device(tflops=1e6), "bandwidth"),
        (device(memory=10.0), "memory"),
        (device(gb_per_s=1e9, tflops=1e9), "launch overhead"),
    ],
)
def test_what_binds(at, binds):
    assert model(at).budget(Plan("dflash", (5.0,))).binds == binds


def test_memory_of_the_released_model():
    """The card says 22 GB of weights in bf16, and 24 GB of memory at least."""
    memory = memory_of(Stages(SHAPE, find_precision("bf16")), find_device("rtx-4090"), "none")
    weights = sum(size for name, size in memory.parts_gb.items() if name.startswith("weights"))
    assert 21 < weights < 23 and 22 < memory.needed_gb < 26
    narrow = memory_of(Stages(SHAPE, find_precision("int4")), find_device("rtx-4090"), "none")
    assert narrow.fits and narrow.needed_gb < 14


def test_drafts_take_memory_and_caches():
    plain, eagle = (memory_of(Stages(SHAPE, find_precision("bf16")), device(), one) for one in ("none", "eagle3"))
    assert eagle.parts_gb["weights, draft"] > 0 and "weights, draft" not in plain.parts_gb
    assert eagle.parts_gb["key-value cache"] / plain.parts_gb["key-value cache"] == pytest.approx(37 / 36)


def test_shared_memory_leaves_less():
    own, shared = (memory_of(Stages(SHAPE, find_precision("bf16")), one, "none")
                   for one in (device(), replace(device(), shared_memory=True)))  # fmt: skip
    assert shared.needed_gb > own.needed_gb


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("oracle",), "draft 'oracle': must be one of none, phrasebook, carryover, eagle3, dflash"),
        (("none", (3.0,)), "accepted length: without a draft it is 1"),
        (("eagle3", (7.4,)), "accepted length: must be 1 … 7 with eagle3, got 7.4"),
        (("dflash", (0.5,)), "accepted length: must be 1 … 16 with dflash, got 0.5"),
        (("dflash", (math.nan,)), "accepted length: must be 1 … 16"),
        (("dflash", (), -1.0), "deadline: must be milliseconds of at least 0, got -1"),
        (("dflash", (), 100.0, math.inf), "draft time: must be milliseconds"),
    ],
)
def test_wrong_plans(arguments, said):
    with pytest.raises(InputError) as caught:
        Plan(*arguments)
    assert said in str(caught.value)


def test_a_language_model_has_no_cycle():
    with pytest.raises(InputError, match="Qwen3 8B: has no vision, action expert and cycle"):
        CycleModel(read_shape("qwen3-8b"), device(), find_precision("bf16"), PERFECT)
