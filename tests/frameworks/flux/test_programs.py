"""The two scripts, run: everything but Flux is real, and Flux is a program that notes how it is called.

They run here as they are rendered, except that they find below a folder what they have at fixed paths, and
that `uname` and `sleep` are ours.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from frameworks.flux.builders import env, flux_layout, flux_runtime
from frameworks.flux.stand_in import Call, read_calls, write_program, write_stand_in
from trainwright.frameworks.flux.scripts import build_scripts
from trainwright.frameworks.flux.settings import read_settings
from trainwright.template.layout import JobLayout

LEAD, FOLLOWER = "demo-node-0-0", "demo-node-0-1"
BROKER_OPTIONS = [
    "-o,-c{root}/mnt/flux/config/etc/flux/config",
    "-o,-Scron.directory={root}/mnt/flux/config/etc/flux/system/cron.d",
    "-o,-Stbon.fanout=256",
    "-o,-Srundir={root}/mnt/flux/config/run/flux",
    "-o,-Sstatedir={root}/mnt/flux/config/var/lib/flux",
    "-o,-Slocal-uri=local://{root}/mnt/flux/config/run/flux/local",
    "-o,-Slog-stderr-level=0",
    "-o,-Slog-stderr-mode=local",
]


class Machine:
    """A folder that is the root of what the scripts see, and the programs on its PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "mnt/flux/config"
        self.notes = root / "notes"
        self.shell = "/bin/sh"
        for folder in ("notes", "mnt/flux", "opt/software", "curve", "bin"):
            (root / folder).mkdir(parents=True)
        (root / "curve/curve.cert").write_text("a certificate\n")
        write_program(root / "bin/uname", '#!/bin/sh\necho "$HOST_NAME"\n')
        write_program(root / "bin/sleep", f'#!/bin/sh\necho "$1" >> {root}/slept\n')

    def install_flux(self) -> None:
        write_stand_in(self.root / "bin/flux")

    def start(
        self, name: str, *words: str, layout: JobLayout | None = None, host: str = LEAD, **variables: str
    ) -> subprocess.Popen[str]:
        layout = layout or flux_layout(flux_runtime(tasks=2, num_nodes=2))
        assert layout.trainer_pod_set is not None
        text = build_scripts(layout, layout.trainer_pod_set, read_settings(layout))[name]
        script = self.root / name
        script.write_text(re.sub(r"(?<!\w)(?=/(mnt/flux|opt/|curve/|tmp/fluxout))", str(self.root), text))
        environment = {
            "PATH": f"{self.root}/bin:/usr/bin:/bin",
            "HOST_NAME": host,
            "STAND_IN": str(self.notes),
            "STAND_IN_ALONE": "1",
            **variables,
        }
        return subprocess.Popen(
            [self.shell, str(script), *words],
            env=environment,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, name: str, *words: str, layout: JobLayout | None = None, host: str = LEAD, **variables: str
    ) -> tuple[int, str, str]:
        """Run a script; return its exit code, output and errors."""
        with self.start(name, *words, layout=layout, host=host, **variables) as process:
            output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    def list_calls(self, verb: str) -> list[Call]:
        return read_calls(self.notes, verb)

    def count_pauses(self) -> list[str]:
        slept = self.root / "slept"
        return slept.read_text().split() if slept.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with Flux, after the init container."""
    made = Machine(tmp_path)
    made.install_flux()
    code, _, errors = made.run("init.sh")
    assert (code, errors) == (0, "")
    return made


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    """A machine on which nothing has run yet, and without Flux."""
    return Machine(tmp_path)


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- init.sh -----------------------------------------------------------------------------------------------


def test_the_init_script_writes_and_shows_the_configuration(machine: Machine) -> None:
    code, output, _ = machine.run("init.sh")
    text = (machine.config / "etc/flux/config/broker.toml").read_text()
    assert code == 0
    assert text in output
    assert tomllib.loads(text)["bootstrap"] == {
        "curve_cert": f"{machine.config}/etc/curve/curve.cert",
        "default_port": 8050,
        "default_bind": "tcp://eth0:%p",
        "default_connect": "tcp://%h.demo:%p",
        "hosts": [{"host": "demo-node-0-[0-1]"}],
    }
    assert (machine.config / "etc/flux/system/hostlist").read_text() == "demo-node-0-[0-1]\n"
    assert (machine.root / "mnt/flux/flux-operator-done.txt").exists()


def test_another_user_may_write_into_what_the_init_script_made(machine: Machine) -> None:
    folders = ("etc/flux/system", "etc/flux/system/cron.d", "var/lib", "run", "etc/curve")
    assert {get_mode(machine.config / folder) for folder in folders} == {0o777}


def test_on_a_shared_machine_brokers_listen_where_they_are_told(machine: Machine) -> None:
    told = {"TRAINWRIGHT_FLUX_ADDRESS": "127.1.0.2", "TRAINWRIGHT_FLUX_PORT": "41000"}
    assert machine.run("init.sh", **told)[0] == 0
    read = tomllib.loads((machine.config / "etc/flux/config/broker.toml").read_text())["bootstrap"]
    assert (read["default_bind"], read["default_port"]) == ("tcp://127.1.0.2:%p", 41000)


def test_awkward_settings_come_through_to_the_configuration(machine: Machine) -> None:
    awkward = "$(touch pwned) `touch pwned` '\"\\\nEOF"
    assert machine.run("init.sh", layout=flux_layout(env=env(FLUX_QUEUE_POLICY=awkward)))[0] == 0
    read = tomllib.loads((machine.config / "etc/flux/config/broker.toml").read_text())
    assert read["sched-fluxion-qmanager"] == {"queue-policy": awkward}
    assert not (machine.root / "pwned").exists()


def test_the_view_is_copied_with_its_links_and_its_software_also_twice(bare: Machine) -> None:
    view = bare.root / "opt/views/._view/abc123"
    software = bare.root / "opt/software/flux-0.88"
    write_program(software / "bin/flux", "#!/bin/sh\n")
    (view / "bin").mkdir(parents=True)
    (view / "bin/flux").symlink_to(software / "bin/flux")
    for _ in range(2):
        code, _, errors = bare.run("init.sh")
        assert (code, errors) == (0, "")
    assert sorted(path.name for path in (bare.root / "mnt/flux/view").iterdir()) == ["bin"]
    assert (bare.root / "mnt/flux/view/bin/flux").readlink() == software / "bin/flux"
    assert os.access(bare.root / "mnt/flux/software/flux-0.88/bin/flux", os.X_OK)


def test_an_image_without_flux_is_no_view(bare: Machine) -> None:
    code, _, errors = bare.run("init.sh")
    assert code == 1
    assert "set FLUX_VIEW_IMAGE to an image with a view" in errors


def test_nothing_is_written_in_a_pod_without_a_host_name_of_its_own(bare: Machine) -> None:
    code, output, errors = bare.run("init.sh", host="laptop")
    assert (code, output) == (1, "")
    assert errors == (
        "the host laptop is none of demo-node-0-[0-1]: "
        "a pod needs a host name of its own, by which Flux ranks it\n"
    )
    assert list((bare.root / "mnt/flux").iterdir()) == []


# -- entrypoint.sh: the pod that leads ----------------------------------------------------------------------


def test_the_lead_runs_the_command_on_all_nodes(machine: Machine) -> None:
    code, output, errors = machine.run("entrypoint.sh", "printf", "%s-", "a b", "c")
    assert (code, output, errors) == (0, "a b-c-", "")
    [start] = machine.list_calls("start")
    options = [option.format(root=machine.root) for option in BROKER_OPTIONS]
    assert start.words[: len(options)] == options
    [run] = machine.list_calls("run")
    assert run.words == ["-N", "2", "-n", "4", "-o", "cpu-affinity=off", "printf", "%s-", "a b", "c"]
    assert machine.list_calls("exec") == []
    assert (machine.root / "mnt/flux/flux-operator-complete.txt").exists()


def test_words_of_the_command_stay_words(machine: Machine) -> None:
    awkward = [
        "a b",
        "",
        "'",
        '"',
        "$HOME",
        "`touch pwned`",
        "$(touch pwned)",
        "; touch pwned",
        "*",
        "\\",
        "-x",
        "a\nb",
    ]
    code, output, _ = machine.run("entrypoint.sh", "printf", "%s\\0", *awkward)
    assert code == 0
    assert output.split("\0")[:-1] == awkward
    assert not (machine.root / "pwned").exists()


def test_the_lead_ends_with_the_exit_code_of_the_command_and_tells_the_others(machine: Machine) -> None:
    code, _, _ = machine.run("entrypoint.sh", "sh", "-c", "exit 3")
    assert code == 3
    [told] = machine.list_calls("exec")
    assert told.words == ["-n", "sh", "-c", f"echo 3 > {machine.root}/mnt/flux/exit-code"]
    assert (machine.root / "mnt/flux/flux-operator-complete.txt").exists()


def test_resources_are_described_for_all_hosts(machine: Machine) -> None:
    assert machine.run("entrypoint.sh", "true")[0] == 0
    described = json.loads((machine.config / "etc/flux/system/R").read_text())
    assert described == ["encode", "--hosts=demo-node-0-[0-1]", "--cores=0-1"]


def test_the_certificate_is_for_its_user_alone(machine: Machine) -> None:
    for _ in range(2):
        assert machine.run("entrypoint.sh", "true")[0] == 0
    certificate = machine.config / "etc/curve/curve.cert"
    assert (certificate.read_text(), get_mode(certificate)) == ("a certificate\n", 0o600)


def test_a_container_that_is_started_again_begins_anew(machine: Machine) -> None:
    for folder in ("var/lib/flux", "run/flux"):
        (machine.config / folder / "left behind").touch()
    (machine.root / "mnt/flux/exit-code").write_text("3\n")
    assert machine.run("entrypoint.sh", "true")[0] == 0
    assert [list((machine.config / folder).iterdir()) for folder in ("var/lib/flux", "run/flux")] == [[], []]
    assert not (machine.root / "mnt/flux/exit-code").exists()


def test_the_view_comes_after_what_the_image_brings(bare: Machine) -> None:
    """Flux is found in the view, whose Python packages come after those that the user named."""
    view = bare.root / "opt/views/._view/abc"
    write_stand_in(view / "bin/flux")
    write_program(view / "bin/python3.11", "#!/bin/sh\n")
    (view / "lib/python3.11/site-packages").mkdir(parents=True)
    (view / "etc/flux/rc1.d").mkdir(parents=True)
    assert bare.run("init.sh")[0] == 0
    (bare.root / "mnt/flux/software/lib").mkdir()
    code, output, errors = bare.run("entrypoint.sh", "sh", "-c", 'echo "$PATH"', PYTHONPATH="/mine")
    assert (code, errors) == (0, "")
    copied = bare.root / "mnt/flux/view"
    assert output == f"{bare.root}/bin:/usr/bin:/bin:{copied}/bin\n"
    [run] = bare.list_calls("run")
    assert run.env == {
        "PYTHONPATH": f"/mine:{copied}/lib/python3.11/site-packages",
        "FLUX_RC_EXTRA": f"{copied}/etc/flux/rc1.d",
    }
    assert {(copied / "bin" / name).readlink() for name in ("python", "python3")} == {
        copied / "bin/python3.11"
    }
    assert (bare.root / "opt/software/lib").is_dir()


def test_who_logs_in_finds_flux(machine: Machine) -> None:
    assert machine.run("entrypoint.sh", "true")[0] == 0
    folder = machine.root / "mnt/flux"
    shown = 'echo "$PATH|$PYTHONPATH|$LD_LIBRARY_PATH|$fluxsocket"'
    told = subprocess.run(
        ["/bin/sh", "-c", f". {folder}/flux-view.sh; {shown}"],
        env={"PATH": "/a b:/bin", "LD_LIBRARY_PATH": "/lib64"},
        capture_output=True,
        text=True,
        check=True,
    )
    socket = f"local://{machine.config}/run/flux/local"
    assert told.stdout == f"/a b:/bin:{folder}/view/bin||/lib64:{folder}/view/lib|{socket}\n"
    loader = (folder / "load-fluxion.sh").read_text().splitlines()
    assert loader[1:] == [
        "flux module remove sched-simple",
        "flux module load sched-fluxion-resource",
        "flux module load sched-fluxion-qmanager",
    ]


def wait_for(folder: Path, pattern: str) -> Path:
    end = time.monotonic() + 60
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < end, f"nothing to be seen of {pattern} in {folder}"
        time.sleep(0.01)  # another process sets no event of ours
    return found[0]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_without_a_command_a_broker_waits_for_whoever_logs_in_until_the_pod_is_to_end(
    machine: Machine, shell: str
) -> None:
    """Bash collects a child as soon as it ends, dash when it waits for it; images have one or the other."""
    machine.shell = shell
    with machine.start("entrypoint.sh") as process:
        wait_for(machine.notes, "waiting")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 7  # what the broker makes of the signal
    assert "there is no command; log in" in errors
    [start] = machine.list_calls("start")
    assert start.words[-1] == "-o,-Sbroker.rc2_none=1"


def test_an_image_without_flux_and_without_a_view_is_told_so(machine: Machine) -> None:
    (machine.root / "bin/flux").unlink()
    code, _, errors = machine.run("entrypoint.sh", "true")
    assert code == 127
    assert errors.startswith(f"flux on {LEAD}: there is no program flux; set FLUX_VIEW_IMAGE to a view")


def test_a_certificate_that_cannot_be_read_is_told_so(machine: Machine) -> None:
    (machine.root / "curve/curve.cert").unlink()
    code, _, errors = machine.run("entrypoint.sh", "true")
    assert code == 1
    assert "cannot read the certificate in" in errors
    assert machine.list_calls("start") == []


# -- entrypoint.sh: the pods that follow --------------------------------------------------------------------


def follow(machine: Machine, codes: list[int]) -> tuple[int, str]:
    """Run a pod that follows, whose brokers end with these codes; the last one for ever."""
    (machine.notes / "codes").write_text(json.dumps(codes))
    code, _, errors = machine.run("entrypoint.sh", "true", host=FOLLOWER)
    return code, errors


def test_a_broker_that_follows_runs_no_command_and_ends_with_its_lead(machine: Machine) -> None:
    assert follow(machine, [0]) == (0, "")
    [start] = machine.list_calls("start")
    assert start.words == [option.format(root=machine.root) for option in BROKER_OPTIONS]
    assert (machine.list_calls("run"), machine.count_pauses()) == ([], [])


def test_a_broker_that_finds_no_lead_is_started_again(machine: Machine) -> None:
    code, errors = follow(machine, [1, 1, 0])
    assert code == 0
    assert (
        errors == f"flux on {FOLLOWER}: the broker ended with exit code 1; it is started again in 15 s\n" * 2
    )
    assert (len(machine.list_calls("start")), machine.count_pauses()) == (3, ["15", "15"])


def test_brokers_give_up_when_there_is_no_lead_for_half_an_hour(machine: Machine) -> None:
    write_program(machine.root / "bin/flux", "#!/bin/sh\n[ $1 != start ] || exit 4\n")  # is quicker
    code, _, errors = machine.run("entrypoint.sh", "true", host=FOLLOWER)
    assert code == 4
    assert errors.endswith(f"flux on {FOLLOWER}: the broker ended with exit code 4 121 times; giving up\n")
    assert machine.count_pauses() == ["15"] * 120


def test_a_pod_that_follows_fails_after_the_lead_whose_command_failed(machine: Machine) -> None:
    """The lead has `flux exec` write the exit code, which this broker's end shows."""
    outcome = machine.root / "mnt/flux/exit-code"
    with machine.start("entrypoint.sh", "true", host=FOLLOWER) as process:
        joined = wait_for(machine.notes, f"joined-{FOLLOWER}.*").name
        draft = machine.notes / "draft"
        draft.write_text(json.dumps(["sh", "-c", f"echo 3 > {outcome}"]))
        draft.rename(machine.notes / joined.replace("joined", "ended"))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert errors == (
        f"flux on {FOLLOWER}: the program failed with exit code 3; its output is in the log of {LEAD}\n"
    )
    assert machine.count_pauses() == ["15"]
