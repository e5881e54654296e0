"""Tables of text."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.tables import escape_controls, format_table, measure_width


def test_columns_are_as_wide_as_their_widest_cell_and_lines_have_no_blanks_at_the_end():
    assert format_table(("NAME", "STATE"), [("a", "Running"), ("a-long-name", "")]) == (
        "NAME          STATE\na             Running\na-long-name\n"
    )


def test_wide_characters_take_two_columns():
    assert format_table(("A", "B"), [("学習", "x"), ("ab", "y")]) == "A      B\n学習   x\nab     y\n"


def test_a_header_alone_is_a_table():
    assert format_table(("A", "B"), []) == "A   B\n"


def test_control_characters_cannot_reach_the_terminal():
    assert escape_controls("a\x1b[31mb\nc\td") == "a\\x1b[31mb\\nc\\td"


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_every_row_is_exactly_one_line(rows):
    assert len(format_table(("A", "B"), rows).split("\n")) == len(rows) + 2


@given(st.text())
def test_width_is_never_negative(text):
    assert measure_width(text) >= 0
