"""Lines of a watch stream, however they are cut."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.kube.watch import split_lines


async def pieces(parts):
    for part in parts:
        yield part


async def lines_of(parts):
    return [line async for line in split_lines(pieces(parts))]


@given(
    st.lists(st.binary(min_size=1, max_size=8).filter(lambda b: b"\n" not in b and b.strip()), max_size=6),
    st.lists(st.integers(min_value=1, max_value=5), max_size=40),
)
async def test_lines_are_the_same_wherever_the_stream_is_cut(lines, cuts):
    stream = b"\n".join(lines)
    parts = []
    for cut in cuts:
        parts.append(stream[:cut])
        stream = stream[cut:]
    parts.append(stream)
    assert await lines_of(parts) == [
        line if i < len(lines) - 1 else line.strip() for i, line in enumerate(lines)
    ]


async def test_a_line_of_several_megabytes_arrives_whole():
    long = b"x" * 65536
    assert await lines_of([long] * 48 + [b"\ny\n"]) == [long * 48, b"y"]
