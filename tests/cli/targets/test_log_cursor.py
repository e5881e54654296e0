from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.targets.log_cursor import LogCursor, StampedLines, parse_stamped

SECOND = 1_000_000_000
# Two streams are stamped apart: a line may be up to a second older than the one before it.
STAMPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, SECOND - 1)), max_size=40).map(
    lambda parts: [
        100 * SECOND + seconds * SECOND // 2 + jitter
        for (seconds, jitter) in sorted(parts, key=lambda part: part[0])
    ]
)


@given(stamps=STAMPS, breaks=st.lists(st.integers(0, 40), max_size=5))
def test_whenever_connections_break_each_line_is_taken_once_and_in_order(stamps, breaks):
    file = list(enumerate(stamps))
    cursor = LogCursor()
    taken = []
    for length in [*sorted(breaks), len(file)]:
        since = cursor.resume()
        since_stamp = 0 if not since else parse_stamped(since.encode() + b" ")[0]
        answer = [line for line in file[:length] if line[1] >= since_stamp]
        taken += [line for line in answer if cursor.take(line[1])]
    assert taken == file


def test_only_two_seconds_are_remembered():
    cursor = LogCursor()
    for number in range(10_000):
        assert cursor.take(number * SECOND // 100)
    assert len(cursor._taken) <= 200


@given(lines=st.lists(st.binary().filter(lambda line: b"\n" not in line)), sizes=st.lists(st.integers(1, 9)))
def test_lines_are_the_same_in_whatever_pieces_they_come(lines, sizes):
    data = b"".join(line + b"\n" for line in lines)
    splitter, found, position = StampedLines(), [], 0
    for size in [*sizes, len(data) + 1]:
        found += splitter.feed(data[position : position + size])
        position += size
    assert found == lines
    assert splitter.finish() == b""


def test_a_line_without_an_end_does_not_fill_the_memory():
    splitter = StampedLines()
    found = [line for _ in range(40) for line in splitter.feed(b"x" * (1 << 16))]
    assert [len(line) for line in found] == [1 << 20, 1 << 20]


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        (b"1970-01-01T00:00:01Z text", (SECOND, "text")),
        (b"1970-01-01T00:00:01.5Z  two", (SECOND + SECOND // 2, " two")),
        (b"1970-01-01T01:00:01.000000007+01:00 ", (SECOND + 7, "")),
        (b"1970-01-01T00:00:01Z", (SECOND, "")),
        (b"1970-01-01T00:00:01Z \xff\r", (SECOND, "�\r")),
        (b"unable to retrieve container logs", (None, "unable to retrieve container logs")),
        (b"1970-01-01 text", (None, "1970-01-01 text")),
        (b"", (None, "")),
    ],
)
def test_the_time_in_front_is_told_from_the_text(line, parsed):
    assert parse_stamped(line) == parsed
