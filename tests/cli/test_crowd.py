"""Many commands at once on one job; `crowd.py` says how, and plays more rounds than these."""

from __future__ import annotations

import random

import pytest

from cli.crowd import clean_up, play_round


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
def test_commands_that_get_in_each_others_way_end_without_a_traceback_and_leave_nothing(program, seed):
    play_round(program, random.Random(seed), 8)
    clean_up(program)
