"""Whatever files hold, the verbs that read them end with an exit code and never with a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainwright.cli.app import run_command_line

JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: digits, labels: {a: b}}
spec:
  suspend: true
  runtimeRef: {name: plain}
  trainer: {numNodes: 2, command: [sh, -c, "echo hello"], env: [{name: A, value: "1"}]}
  runtimePatches:
  - manager: acme.io/team
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template: {spec: {template: {spec: {nodeSelector: {zone: a}}}}}
"""


@pytest.fixture(autouse=True, scope="module")
def own_state():
    """Nothing of whoever runs the tests is read or written."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STATE", f"{folder}/state")
        patch.setenv("XDG_CONFIG_HOME", folder)
        patch.delenv("TRAINWRIGHT_ON", raising=False)
        yield


def run(verb: str, data: bytes) -> tuple[int, str, str]:
    """Run the verb in this process with the data as stdin; return exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command_line([verb, "-f", "-"])
        out.flush()
        return code, out.buffer.getvalue().decode(), err.getvalue()
    finally:
        sys.stdin = before


def check(verb: str, data: bytes) -> None:
    code, out, err = run(verb, data)
    assert code in {0, 2}, err
    if code == 2:
        assert out == ""
        assert err.strip()


def cut(text: str, place: int, length: int, inserted: str) -> str:
    return text[:place] + inserted + text[place + length :]


# Pieces that mean something to a reader of YAML or to a rule, put anywhere into a job that is right.
PIECES = st.sampled_from(
    (
        "", "\t", "\0", ": ", "- ", "{", "}", "[", "]", "&a ", "*a", "!!python/object:os.system ", "---\n",
        "...\n", '"', "'", "|", ">", "?", "%YAML 9\n", "null", "-1", "1e999", "99999999999999999999", ".nan",
        "0x", "\u2028", "\ud83d", "é",
    )
)  # fmt: skip


@pytest.mark.parametrize("verb", ["validate", "render"])
@given(place=st.integers(0, len(JOB)), length=st.integers(0, 12), inserted=PIECES)
@settings(max_examples=60)
def test_a_job_with_one_slip_is_right_or_refused(verb, place, length, inserted):
    check(verb, cut(JOB, place, length, inserted).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("verb", ["validate", "render", "apply"])
@given(data=st.binary(max_size=200))
@example(b"")
@example(b"[" * 5_000)
@example(b"a: &a [*a]")
@example(JOB.encode("utf-16"))
@settings(max_examples=40)
def test_bytes_that_are_no_objects_are_refused(verb, data):
    check(verb, data)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = (
    "runtimeRef",
    "trainer",
    "initializer",
    "runtimePatches",
    "suspend",
    "activeDeadlineSeconds",
    "managedBy",
)


@pytest.mark.parametrize("verb", ["validate", "render"])
@given(spec=st.dictionaries(st.sampled_from(FIELDS), VALUES), metadata=VALUES)
@settings(max_examples=60)
def test_objects_of_any_shape_are_right_or_refused(verb, spec, metadata):
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": spec,
    }
    check(verb, json.dumps(body).encode("utf-8", "surrogatepass"))


def test_a_refused_file_leaves_nothing_behind():
    code, _, _ = run("apply", JOB.replace("numNodes", "nodes").encode())
    assert code == 2
    code, out, _ = run("validate", JOB.encode())
    assert (code, out) == (0, "")
    assert not Path(os.environ["TRAINWRIGHT_STATE"], "jobs").exists()
