"""What mpirun starts in other pods starts in the job's code; a stand-in for ssh is at the process's edge."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.api.encoding import build_object, parse_object
from trainwright.api.meta import ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.cli.code_sources import WorkingDirectory
from trainwright.cli.shipping.archive import build_archive
from trainwright.cli.shipping.mpi_agent import build_agent, build_agent_exports, check_agent
from trainwright.cli.shipping.placing import Places, build_start
from trainwright.cli.shipping.tree import Entry
from trainwright.errors import UsageError
from trainwright.runtimes import load_shipped_runtimes

# Says what it was called with, and is then a pod that nobody has been in: nothing unpacked, no variables.
STAND_IN = """\
#!{python}
import json, os, shutil, sys
*options, host, line = sys.argv[1:]
json.dump([*options, host], open({said!r}, "w"))
shutil.rmtree({work!r})
os.mkdir({work!r})
os.execve("/bin/sh", ["sh", "-c", line], {{"PATH": {path!r}, "HOME": "/"}})
"""
TELL = (
    "import json, os, sys;"
    "json.dump([sys.argv[1:], os.getcwd(), open('other.txt').read(), dict(os.environ)], sys.stdout)"
)
SHOWN = st.characters(exclude_characters="\0", exclude_categories=("Cs",))


class Pods:
    """A launcher that is unpacked, and a way from it to a node."""

    def __init__(self, folder: Path, variables: Sequence[str]) -> None:
        self.places = Places(archive=str(folder / "archive"), work=str(folder / "work"))
        self._said = folder / "said.json"
        self._path = f"{folder / 'bin'}:{os.environ['PATH']}"
        for name in ("archive", "work", "bin"):
            (folder / name).mkdir()
        self._start = build_start(WorkingDirectory(), self.places, build_agent_exports(self.places.work))
        entries = [
            Entry(path="lib", mode=0o755),
            Entry(path="code", mode=0o755),
            Entry(path="code/other.txt", mode=0o644, content=b"of the project"),
            *build_agent(self._start, variables, self.places.work),
        ]
        (folder / "archive" / "part-00").write_bytes(build_archive(entries))
        ssh = folder / "bin" / "ssh"
        work, said = self.places.work, str(self._said)
        ssh.write_text(STAND_IN.format(python=sys.executable, said=said, work=work, path=os.environ["PATH"]))
        ssh.chmod(0o755)

    def reach(self, words: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], list[object]]:
        """Call what mpirun would call, in the launcher; return what ssh got, and what the node started."""
        mpirun = ["sh", "-c", 'exec "$OMPI_MCA_plm_rsh_agent" "$@"', "mpirun"]
        done = subprocess.run(
            [*self._start, *mpirun, *words], env={"PATH": self._path, **env}, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(self._said.read_text()), json.loads(done.stdout)


def test_what_is_started_on_a_host_starts_in_the_code_with_the_variables_of_the_job(tmp_path):
    pods = Pods(tmp_path, ["RATE", "UNSET"])
    tell = [shlex.quote(word) for word in (sys.executable, "-c", TELL, "a b")]
    options = ["-x", "-o", "ConnectionAttempts=10", "-oLogLevel=ERROR", "demo-node-0-0.demo"]
    said, (words, folder, other, env) = pods.reach([*options, *tell], {"RATE": "3", "OTHER": "no"})
    assert said == options
    assert (words, folder, other) == (["a b"], f"{pods.places.work}/code", "of the project")
    ours = dict.fromkeys(
        (
            "OMPI_MCA_plm_rsh_agent",
            "PRTE_MCA_plm_ssh_agent",
            "HYDRA_LAUNCHER_EXEC",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC",
        ),
        f"{pods.places.work}/mpi/agent",
    )
    shells = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
    assert {name: value for name, value in env.items() if name not in shells} == {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "RATE": "3",
        "PYTHONPATH": f"{pods.places.work}/lib",
        **ours,
    }


@settings(max_examples=15, deadline=None)
@given(value=st.text(SHOWN | st.sampled_from("'\"$`\\\n")), argument=st.text(SHOWN | st.sampled_from("'\n*")))
def test_no_character_is_changed_on_the_way_to_a_host(value, argument):
    with tempfile.TemporaryDirectory() as folder:
        pods = Pods(Path(folder), ["name", "value", "left"])
        tell = shlex.join([sys.executable, "-c", TELL, argument])
        env = {"name": value, "value": "1", "left": "2", "PYTHONUTF8": "1"}
        _, (words, _, _, found) = pods.reach(["demo-node-0-0", tell], env)
        assert words == [argument]
        assert {name: found[name] for name in ("name", "value", "left")} == {
            "name": value,
            "value": "1",
            "left": "2",
        }


def test_variables_that_a_shell_cannot_name_are_left_alone():
    [_, agent, _] = build_agent(["sh"], ["a.b", "B", "$(id)", "A", "B"], "/w")
    assert agent.content is not None
    assert b"in A B; do" in agent.content


def build_job(*names: str) -> TrainJob:
    env = [{"name": name, "value": "x"} for name in names]
    return TrainJob(
        metadata=ObjectMeta(name="demo"),
        spec=TrainJobSpec(runtime_ref=RuntimeRef(name="mpi-distributed"), trainer=Trainer(env=env)),
    )


def build_runtime(*names: str) -> Runtime:
    body = build_object(load_shipped_runtimes()["mpi-distributed"])
    launcher = body["spec"]["template"]["spec"]["replicatedJobs"][1]
    [container] = launcher["template"]["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": name, "value": "x"} for name in names]
    return parse_object(body, ClusterTrainingRuntime)


TAKEN = {
    "by the job": (
        build_job("A", "OMPI_MCA_plm_rsh_agent"),
        build_runtime(),
        "the job sets OMPI_MCA_plm_rsh_agent, by which mpirun brings the code to the other nodes; leave it "
        "out, or put the code into the image with --no-code",
    ),
    "by the runtime": (
        build_job(),
        build_runtime("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"),
        "runtime 'mpi-distributed' sets HYDRA_LAUNCHER_EXEC and PRTE_MCA_plm_ssh_agent, by which mpirun "
        "brings the code to the other nodes; leave it out, or put the code into the image with --no-code",
    ),
}


@pytest.mark.parametrize(("job", "runtime", "message"), TAKEN.values(), ids=TAKEN)
def test_a_way_of_their_own_to_the_hosts_is_refused(job, runtime, message):
    with pytest.raises(UsageError) as refused:
        check_agent(job, runtime)
    assert str(refused.value) == message


def test_other_variables_are_not():
    check_agent(build_job("OMPI_MCA_plm_rsh_args", "A"), build_runtime("HYDRA_LAUNCHER"))
    check_agent(msgspec.structs.replace(build_job(), spec=None), build_runtime())
