"""Variables from `--env` and `--env-file`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.environment_options import parse_env_file, parse_env_options
from trainwright.errors import UsageError

MINE = {"TOKEN": "mine", "QUOTED": '"kept"'}


def test_a_value_is_taken_as_it_stands():
    assert parse_env_options(["A=1", "B=x=y", "C=", "D= two  words "], MINE) == {
        "A": "1",
        "B": "x=y",
        "C": "",
        "D": " two  words ",
    }


def test_a_name_alone_takes_the_value_of_the_caller():
    assert parse_env_options(["TOKEN"], MINE) == {"TOKEN": "mine"}


def test_the_last_value_of_a_name_wins():
    assert parse_env_options(["A=1", "A=2"], MINE) == {"A": "2"}


MISTAKES = {
    "not set": ("NOPE", "--env: NOPE is not set in your environment; set it, or write NOPE=VALUE"),
    "no name": ("=x", "'=x' does not start with the name of a variable"),
    "blank in name": ("A B=x", "'A B=x' does not start with the name of a variable"),
    "digit first": ("1A=x", "does not start with the name"),
    "NUL": ("A=\0", "contains a NUL character"),
}


@pytest.mark.parametrize(("option", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_explained(option, message):
    with pytest.raises(UsageError) as caught:
        parse_env_options([option], MINE)
    assert message in str(caught.value)


def test_a_file_has_a_variable_a_line():
    text = """
# comment
A=1
export B = no
  C='single quoted'
D="double = quoted"
E='unbalanced"
F= padded
TOKEN
QUOTED
G=a # not a comment
"""
    assert parse_env_file(text.replace("export B = no", "export B=yes"), "f", MINE) == {
        "A": "1",
        "B": "yes",
        "C": "single quoted",
        "D": "double = quoted",
        "E": "'unbalanced\"",
        "F": "padded",
        "TOKEN": "mine",
        "QUOTED": '"kept"',
        "G": "a # not a comment",
    }


def test_a_mistake_in_a_file_has_its_line():
    with pytest.raises(UsageError, match=r"train\.env:3: NOPE is not set"):
        parse_env_file("A=1\n\nNOPE\n", "train.env", MINE)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.text(st.characters(exclude_characters="\0"))
    )
)
def test_what_is_written_on_the_command_line_is_what_the_job_gets(variables):
    assert parse_env_options([f"{name}={value}" for name, value in variables.items()], {}) == variables
