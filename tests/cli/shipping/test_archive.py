"""Any tree comes out of the archive as it went in, by whichever program unpacks it."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.cli.code_sources import CodeUrl, WorkingDirectory
from trainwright.cli.shipping.archive import build_archive
from trainwright.cli.shipping.placing import Places, build_start
from trainwright.cli.shipping.tree import Entry, read_tree

# Every byte that a file name may have, UTF-8 or not.
_NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..", b".git")
)
_LONG_NAMES = st.integers(100, 250).map(lambda length: b"n" * length)
_PATHS = st.lists(_NAMES | _LONG_NAMES, min_size=1, max_size=3)
_FILES = st.tuples(_PATHS, st.binary(max_size=600), st.sampled_from((0o644, 0o755, 0o600, 0o444)))


def write_tree(root: Path, files: list[tuple[list[bytes], bytes, int]]) -> None:
    for parts, content, mode in files:
        path = root / Path(*map(os.fsdecode, parts))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(content)
                path.chmod(mode)
        except (FileExistsError, NotADirectoryError):
            continue  # a file of another example is in the way


def unpack(archive: bytes, folder: Path, path: str) -> Path:
    """Unpack as a pod does, with the programs of `path`, and return where."""
    parts, work = folder / "parts", folder / "work"
    parts.mkdir()
    work.mkdir()
    middle = len(archive) // 2
    (parts / "part-00").write_bytes(archive[:middle])
    (parts / "part-01").write_bytes(archive[middle:])
    start = build_start(WorkingDirectory(), Places(archive=str(parts), work=str(work)))
    done = subprocess.run([*start, "pwd"], env={"PATH": path}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == str(work / "code")
    return work


def make_path(folder: Path, *names: str) -> str:
    """Return a PATH with these programs, and those that come with every shell, alone."""
    folder.mkdir()
    for name in ("sh", "cat", "mkdir", "mktemp", "mv", "pwd", "rm", *names):
        found = sys.executable if name == "python3" else shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


@settings(max_examples=25, deadline=None)
@given(files=st.lists(_FILES, max_size=6), unpacker=st.sampled_from((("tar", "gzip"), ("python3",))))
def test_every_tree_is_unpacked_as_it_was(files, unpacker):
    with tempfile.TemporaryDirectory() as folder:
        root, pod = Path(folder, "root"), Path(folder, "pod")
        root.mkdir()
        pod.mkdir()
        write_tree(root, files)
        entries = read_tree(root)
        moved = [Entry(path="code", mode=0o755)] + [
            Entry(path=f"code/{e.path}", mode=e.mode, content=e.content, target=e.target) for e in entries
        ]
        path = make_path(pod / "bin", *unpacker)
        work = unpack(build_archive(moved), pod, path)
        assert read_tree(work / "code") == entries


def test_links_and_folders_come_through(tmp_path):
    entries = [
        Entry(path="code", mode=0o755),
        Entry(path="code/closed", mode=0o555),
        Entry(path="code/closed/file", mode=0o400, content=b"x"),
        Entry(path="code/empty", mode=0o700),
        Entry(path="code/link", mode=0o777, target="closed/file"),
    ]
    for unpacker in (("tar", "gzip"), ("python3",)):
        folder = tmp_path / unpacker[0]
        folder.mkdir()
        work = unpack(build_archive(entries), folder, make_path(folder / "bin", *unpacker))
        assert read_tree(work)[: len(entries)] == entries
        (work / "code" / "closed").chmod(0o755)  # so that it can be removed


def test_the_archive_depends_on_nothing_but_the_entries():
    entries = [Entry(path="b", mode=0o644, content=b"2"), Entry(path="a", mode=0o644, content=b"1")]
    assert build_archive(entries) == build_archive(reversed(entries))


def test_touching_a_file_changes_nothing(tmp_path):
    (tmp_path / "train.py").write_text("print()")
    before = build_archive(read_tree(tmp_path))
    os.utime(tmp_path / "train.py", (1, 1))
    assert build_archive(read_tree(tmp_path)) == before


def test_an_image_that_can_unpack_nothing_says_so(tmp_path):
    path = make_path(tmp_path / "bin")
    start = build_start(WorkingDirectory(), Places(archive=str(tmp_path), work=str(tmp_path)))
    done = subprocess.run([*start, "true"], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == "trainwright: the image has neither tar nor python3 to unpack the code with\n"


def test_code_is_downloaded_and_a_container_that_is_restarted_finds_it_as_it_left_it(tmp_path):
    (tmp_path / "site").mkdir()
    for part in ("archive", "work"):
        (tmp_path / part).mkdir()
    code = [Entry(path="train.py", mode=0o644, content=b"print(open('state', 'a+').tell())\n")]
    (tmp_path / "site" / "a b.tgz").write_bytes(build_archive(code))
    library = [Entry(path="lib", mode=0o755)]
    (tmp_path / "archive" / "part-00").write_bytes(build_archive(library))
    places = Places(archive=str(tmp_path / "archive"), work=str(tmp_path / "work"))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        source = CodeUrl(url=f"http://127.0.0.1:{server.server_address[1]}/a%20b.tgz")
        command = [*build_start(source, places), "python3", "train.py"]
        first = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown()
        thread.join()
    assert (first.returncode, first.stdout) == (0, "0\n"), first.stderr
    (tmp_path / "work" / "code" / "state").write_text("kept")
    again = subprocess.run(command, capture_output=True, text=True, check=False)  # the server is gone
    assert (again.returncode, again.stdout) == (0, "4\n"), again.stderr


def test_all_that_start_at_the_same_moment_find_the_code_whole(tmp_path):
    for part in ("archive", "work"):
        (tmp_path / part).mkdir()
    files = [Entry(path=f"code/{number}.py", mode=0o644, content=b"pass\n") for number in range(300)]
    entries = [Entry(path="code", mode=0o755), Entry(path="lib", mode=0o755), *files]
    (tmp_path / "archive" / "part-00").write_bytes(build_archive(entries))
    places = Places(archive=str(tmp_path / "archive"), work=str(tmp_path / "work"))
    count = [*build_start(WorkingDirectory(), places), "sh", "-c", "cat *.py | wc -l"]
    started = [subprocess.Popen(count, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert {process.communicate()[0].strip() for process in started} == {"300"}
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["code", "lib", "unpacked"]


def test_no_character_of_an_argument_is_changed_on_its_way(tmp_path):
    for part in ("archive", "work/code"):
        (tmp_path / part).mkdir(parents=True)
    (tmp_path / "work" / "unpacked").touch()
    places = Places(archive=str(tmp_path / "archive"), work=str(tmp_path / "work"))
    words = [*map(chr, range(1, 128)), "", "$(HOME)", "$$", "`id`", "\\\\", "é\n", "'\"'", "-n", "*"]
    program = [
        sys.executable,
        "-c",
        "import os,sys;sys.stdout.buffer.write(os.fsencode('\\n'.join(sys.argv[1:])))",
    ]
    done = subprocess.run(
        [*build_start(WorkingDirectory(), places), *program, *words], capture_output=True, check=True
    )
    assert done.stdout == os.fsencode("\n".join(words))
