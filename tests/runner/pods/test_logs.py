"""Reading logs while they are written, rotated and finished. The writer is the real one."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.runner.executors.output import (
    ContainerOutput,
    LineSplitter,
    OutputPump,
    RotatingFile,
    Rotation,
)
from trainwright.runner.pods.logs import LONGEST_LINE_BYTES, LogFile, LogFollower, list_ranks, read_logs

SMALL = Rotation(size_bytes=100, files=3)


def mark(rank: int) -> bytes:
    return b"\x1e%d\x1f" % rank


def split(*chunks: bytes, rank_base: int = 0):
    splitter = LineSplitter(rank_base)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + list(splitter.finish())


def test_a_log_that_is_full_begins_anew_at_a_line_end(tmp_path):
    file = RotatingFile(tmp_path / "node.log", SMALL)
    for number in range(30):
        file.write(b"line %06d\n" % number)
    file.close()
    generations = LogFile(tmp_path / "node.log").list_generations()
    assert [path.name for path in generations] == ["node.log.2", "node.log.1", "node.log"]
    kept = b"".join(path.read_bytes() for path in generations)
    assert kept.splitlines()[-1] == b"line 000029"
    assert all(path.read_bytes().endswith(b"\n") for path in generations if path.stat().st_size)


def test_a_writer_goes_on_in_the_file_that_is_there(tmp_path):
    for text in (b"before\n", b"after\n"):
        file = RotatingFile(tmp_path / "node.log", SMALL)
        file.write(text)
        file.close()
    assert (tmp_path / "node.log").read_bytes() == b"before\nafter\n"


def test_a_full_disk_costs_output_and_says_how_much():
    file = RotatingFile(Path("/dev/full"), Rotation())
    file.write(b"lost\n")  # ENOSPC: the training must not notice
    file.close()


def test_what_was_lost_is_said_when_there_is_room_again(tmp_path):
    folder = tmp_path / "pod"
    folder.touch()  # a file where the folder should be
    file = RotatingFile(folder / "node.log", Rotation())
    file.write(b"lost\n")
    folder.unlink()
    file.write(b"there\n")
    file.close()
    assert (folder / "node.log").read_text() == "[5 bytes of output were lost: File exists]\nthere\n"


@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_the_tail_crosses_files(tmp_path, count):
    file = RotatingFile(tmp_path / "node.log", SMALL)
    for number in range(30):
        file.write(b"line %06d\n" % number)
    file.close()
    kept = b"".join(
        path.read_bytes() for path in LogFile(tmp_path / "node.log").list_generations()
    ).splitlines()
    assert LogFile(tmp_path / "node.log").read_tail(count) == kept[max(0, len(kept) - count) :]


def test_a_tail_is_bounded_in_bytes(tmp_path):
    (tmp_path / "node.log").write_bytes(b"x" * 50 + b"\n" + b"y" * 50 + b"\n")
    assert LogFile(tmp_path / "node.log").read_tail(80, 60) == [b"y" * 50]


@given(
    writes=st.lists(
        st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=4), max_size=25
    )
)
def test_a_follower_sees_every_line_once_whatever_is_rotated(tmp_path_factory, writes):
    """Read after every write: a reader may fall behind by a rotation, not by all the files that are kept."""
    path = tmp_path_factory.mktemp("logs") / "node.log"
    file, follower = RotatingFile(path, SMALL), LogFollower(path)
    seen: list[bytes] = []
    for lines in writes:
        file.write(b"".join(line + b"\n" for line in lines))
        seen += follower.read()
    seen += follower.read(is_final=True)
    file.close()
    follower.close()
    assert seen == [line for lines in writes for line in lines]


def test_a_follower_may_begin_with_the_last_lines(tmp_path):
    file = RotatingFile(tmp_path / "node.log", SMALL)
    for number in range(30):
        file.write(b"%d\n" % number)
    follower = LogFollower(tmp_path / "node.log", tail=2)
    assert list(follower.read()) == [b"28", b"29"]
    file.write(b"30\n")
    assert list(follower.read()) == [b"30"]
    file.close()
    follower.close()


def test_a_line_that_is_not_finished_is_held_back_until_the_end(tmp_path):
    path = tmp_path / "node.log"
    path.write_bytes(b"one\ntw")
    follower = LogFollower(path)
    assert list(follower.read()) == [b"one"]
    assert list(follower.read(is_final=True)) == [b"tw"]
    follower.close()


def test_a_very_long_line_comes_in_pieces(tmp_path):
    path = tmp_path / "node.log"
    path.write_bytes(b"x" * (3 * LONGEST_LINE_BYTES + 5) + b"\n")
    follower = LogFollower(path)
    lines = list(follower.read(is_final=True))
    follower.close()
    assert b"".join(lines) == b"x" * (3 * LONGEST_LINE_BYTES + 5)
    assert max(map(len, lines)) <= LONGEST_LINE_BYTES


SPLITS = {
    "lines of two ranks": (
        [mark(0) + b"a\n" + mark(1) + b"b\n"],
        [(0, b"a\n"), (1, b"b\n")],
    ),
    "what the launcher itself says": ([b"W1129 warning\n"], [(None, b"W1129 warning\n")]),
    "a line that torchrun read in two parts": (
        [mark(0) + b"ab", mark(1) + b"xyz\n" + mark(0) + b"cd\n"],
        [(1, b"xyz\n"), (0, b"abcd\n")],
    ),
    "a mark that came in two parts": ([b"\x1e1", b"2\x1fa\n"], [(12, b"a\n")]),
    "the last line without an end": ([mark(0) + b"a"], [(0, b"a\n")]),
    "the launcher after a rank": ([mark(0) + b"a\nend\n"], [(0, b"a\n"), (None, b"end\n")]),
}


@pytest.mark.parametrize(("chunks", "lines"), SPLITS.values(), ids=SPLITS)
def test_output_is_put_together_by_rank(chunks, lines):
    assert split(*chunks) == lines


def test_older_versions_of_torchrun_name_the_local_rank():
    assert split(b"[default1]:hello\n", rank_base=4) == [(5, b"hello\n")]


@given(st.lists(st.tuples(st.integers(0, 3), st.text("ab ", max_size=5)), max_size=10), st.data())
def test_it_does_not_matter_where_the_pipe_cuts(lines, data):
    whole = b"".join(mark(rank) + text.encode() + b"\n" for rank, text in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    chunks = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert split(*chunks) == [(rank, text.encode() + b"\n") for rank, text in lines]


def test_each_rank_has_a_file_of_its_own_and_the_whole_names_them(tmp_path):
    output = ContainerOutput(tmp_path, "node", Rotation(), rank_base=2, processes=2)
    output.write(mark(2) + b"a\n" + mark(3) + b"b\n" + b"launcher\n")
    output.finish()
    output.close()
    assert (tmp_path / "node.log").read_text() == "[rank2] a\n[rank3] b\nlauncher\n"
    assert (tmp_path / "ranks" / "2.log").read_text() == "a\n"
    assert (tmp_path / "ranks" / "3.log").read_text() == "b\n"


@pytest.mark.parametrize("processes", [1, None], ids=["of torchrun", "of anything else"])
def test_the_only_process_of_a_pod_is_its_rank(tmp_path, processes):
    folder = tmp_path / "demo-node-0-1-abcde"
    output = ContainerOutput(folder, "node", Rotation(), rank_base=1, processes=processes)
    output.open()
    output.write(b"a\n")
    output.close()
    (log,) = list_ranks(tmp_path)[1]
    assert log.read_text() == "a\n"


async def read(pods, **options):
    return [(line.pod, line.container, line.rank, line.text) async for line in read_logs(pods, **options)]


async def test_all_output_is_read_with_its_rank(tmp_path):
    for number in range(2):
        output = ContainerOutput(
            tmp_path / f"pod-{number}", "node", Rotation(), rank_base=number * 2, processes=2
        )
        output.write(mark(number * 2) + b"hello\n" + b"launcher \xff\n")
        output.close()
    assert await read(tmp_path) == [
        ("pod-0", "node", 0, "hello"),
        ("pod-0", "node", None, "launcher \N{REPLACEMENT CHARACTER}"),
        ("pod-1", "node", 2, "hello"),
        ("pod-1", "node", None, "launcher \N{REPLACEMENT CHARACTER}"),
    ]
    assert await read(tmp_path, rank=2) == [("pod-1", "", 2, "hello")]
    assert await read(tmp_path, tail=1) == [
        ("pod-0", "node", None, "launcher \N{REPLACEMENT CHARACTER}"),
        ("pod-1", "node", None, "launcher \N{REPLACEMENT CHARACTER}"),
    ]


async def test_following_finds_pods_that_come_later_and_ends_with_the_job(tmp_path):
    """1. A pod writes. 2. A second one appears. 3. The job ends; what was written last is still seen."""
    finished = asyncio.Event()
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        async for line in read_logs(tmp_path, follow=True, is_finished=finished.is_set):
            seen.put_nowait(f"{line.pod} {line.text}")

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        for name in ("pod-0", "pod-1"):
            output = ContainerOutput(tmp_path / name, "node", Rotation(), None, None)
            output.write(b"up\n")
            assert await seen.get() == f"{name} up"
        output.write(b"last")
        output.close()
        finished.set()
    assert seen.get_nowait() == "pod-1 last"


async def test_a_program_waits_for_a_slow_reader_and_nothing_is_lost(tmp_path):
    output = ContainerOutput(tmp_path, "node", Rotation(), None, None)
    pump = OutputPump(output)
    write_end = os.dup(pump.write_end)

    def produce() -> None:
        with os.fdopen(write_end, "wb") as pipe:
            for number in range(50_000):
                pipe.write(b"line %d\n" % number)

    producer = asyncio.create_task(asyncio.to_thread(produce))
    pump.start()
    await producer
    await pump.finish()
    output.close()
    assert (tmp_path / "node.log").read_text().splitlines() == [f"line {n}" for n in range(50_000)]


async def test_a_program_that_prints_without_end_lets_others_have_their_turn(tmp_path):
    """
    1. For every block of its log that is read, a pod prints another one: its log never comes to its end.
    2. Whoever reads it gets to do other things, the output of another pod is shown, and the job ends.
    """
    loud, quiet = (ContainerOutput(tmp_path / name, "node", Rotation(), None, None) for name in "ab")
    line = b"loud" * 1000 + b"\n"
    loud.write(line * 1000)
    quiet.write(b"quiet\n")
    finished, heard = asyncio.Event(), asyncio.Event()

    async def follow() -> None:
        async for found in read_logs(tmp_path, follow=True, is_finished=finished.is_set):
            if found.text == "quiet":
                heard.set()
            elif not finished.is_set():
                loud.write(line + line)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await heard.wait()
        finished.set()
    loud.close()
    quiet.close()


async def test_what_there_is_comes_to_an_end_although_more_is_printed(tmp_path):
    output = ContainerOutput(tmp_path / "pod", "node", Rotation(), None, None)
    output.write(b"before\n" * 1000)
    texts = []
    async for line in read_logs(tmp_path):
        texts.append(line.text)
        output.write(b"meanwhile\n" * 10)
    output.close()
    assert texts == ["before"] * 1000


def test_the_last_lines_are_whole_whatever_is_written_and_rotated_meanwhile(tmp_path):
    """A writer that does not pause, while many readers begin with the last lines."""
    path = tmp_path / "node.log"
    file, done = RotatingFile(path, Rotation(size_bytes=2000, files=3)), threading.Event()
    file.write(b"line 000000\n")

    def write() -> None:
        for number in itertools.count(1):
            if done.is_set():
                return
            file.write(b"line %06d\n" % number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            follower = LogFollower(path, tail=3)
            first = next(follower.read(), b"line 000000")
            follower.close()
            assert re.fullmatch(rb"line \d{6}", first)
    finally:
        done.set()
        writer.join()
    file.close()


def test_a_job_may_be_deleted_while_its_logs_are_looked_for(tmp_path):
    """Folders and files come and go all the time: whatever is there at a moment is an answer."""
    pods, done = tmp_path / "pods", threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for name in "abc":
                (pods / name / "ranks").mkdir(parents=True)
                (pods / name / "node.log").write_bytes(b"x\n")
                (pods / name / "ranks" / "1.log").write_bytes(b"x\n")
            shutil.rmtree(pods)

    deleter = threading.Thread(target=come_and_go)
    deleter.start()
    try:
        for _ in range(300):
            list_ranks(pods)
            LogFile(pods / "a" / "node.log").read_tail(5)
            follower = LogFollower(pods / "b" / "node.log", tail=1)
            assert list(follower.read(is_final=True)) in ([], [b"x"])
            follower.close()
            assert {line[3] for line in asyncio.run(read(pods, tail=1))} <= {"x"}
    finally:
        done.set()
        deleter.join()
