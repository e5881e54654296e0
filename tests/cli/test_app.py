"""The program as a whole: what it loads, what it answers to nonsense, how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainwright import __version__

ROOT = Path(__file__).resolve().parents[2]

# Loaded only once the verb is known, and then only by a verb that needs them.
HEAVY = (
    "aiohttp", "asyncio", "msgspec", "rich", "sqlite3", "structlog", "yaml", "matplotlib", "psutil",
    "tomllib",
)  # fmt: skip
VERBS = (
    "run", "apply", "validate", "render", "list", "get", "logs", "wait", "suspend", "resume", "scale", "stop",
    "delete", "explain", "install", "uninstall", "controller", "runtimes",
)  # fmt: skip


def test_help_of_the_program_and_of_every_verb_loads_nothing_heavy():
    asked = [["--version"], ["--help"], *([verb, "--help"] for verb in VERBS)]
    code = (
        "import sys\nfrom trainwright.cli.app import run_command_line\n"
        f"assert not any(run_command_line(words) for words in {asked!r})\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "typer" in loaded
    assert loaded & set(HEAVY) == set()


def test_help_lists_exactly_the_verbs_that_there_are(program):
    listed = program.succeed("--help").partition("Commands:")[2]
    assert [
        line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "
    ] == list(VERBS)


def test_the_version_is_data(program):
    assert program.succeed("--version") == f"trainwright {__version__}\n"


@pytest.mark.parametrize(
    "words", [("--nope",), ("nope",), ("list", "--nope"), ("get",), ("list", "-o", "xml"), ("get", "a", "b")]
)
def test_nonsense_is_wrong_usage(program, words):
    done = program.run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("docker", ["list"]),
        ("podman", ["run", "--", "true"]),
        ("slurm", ["suspend", "x"]),
        ("docker", ["runtimes", "list"]),
    ],
)
def test_a_target_that_is_not_built_is_not_reachable(program, name, words):
    place = (
        words.index("--") if "--" in words else len(words)
    )  # what stands behind belongs to the program to run
    done = program.run(*words[:place], "--on", name, *words[place:])
    assert (done.returncode, done.stdout) == (4, "")
    remedy = "use `--on local` or `--on kubernetes`"
    assert done.stderr == f"Error: target {name!r} is not available in this version; {remedy}\n"


def test_the_target_may_come_from_the_environment(program):
    assert program.run("list", environment={"TRAINWRIGHT_ON": "slurm"}).returncode == 4
    assert program.run("list", environment={"TRAINWRIGHT_ON": "moon"}).returncode == 2


def test_the_reference_in_the_docs_is_that_of_the_program():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate_cli.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_common_shell_gets_its_completion(program, shell):
    done = program.run(environment={"_TRAINWRIGHT_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0
    assert "trainwright" in done.stdout
