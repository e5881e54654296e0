"""Numbers that grow, in words that seldom change: each difference in a message would be a status write."""

from __future__ import annotations

_EXACT = 3


def round_down(number: int) -> str:
    """Return the number, exact up to 3, else `<power of two> or more`."""
    return str(number) if number <= _EXACT else f"{1 << (number.bit_length() - 1)} or more"


def count_times(number: int) -> str:
    """Return how often, in words."""
    return "once" if number == 1 else f"{round_down(number)} times"
