"""What is told where a cluster cannot be had, or refuses."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml
from aiohttp import web

from trainwright.cli.targets import FieldsOfOthers
from trainwright.cli.targets.kubernetes_requests import ExplainingTransport, NotInstalled
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import AlreadyExists, Forbidden, InvalidObject, NotFound, UserError


def write_kubeconfig(program, server: str, **user: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    return str(program.write("config", yaml.safe_dump(config)))


def test_a_server_that_is_down_is_not_reachable(program):
    # Bound, so that nobody else gets the port meanwhile, and not listened at.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = write_kubeconfig(program, f"https://127.0.0.1:{port}")
        done = program.run("list", "--on", "kubernetes", "--kubeconfig", config)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(f"Error: the API server https://127.0.0.1:{port} does not answer")
    assert "Traceback" not in done.stderr


def test_without_a_kubeconfig_it_is_said_where_one_is_looked_for(program, tmp_path):
    done = program.run("list", "--on", "kubernetes", environment={"HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (4, "")
    assert "set KUBECONFIG, or create ~/.kube/config" in done.stderr


def test_a_context_that_does_not_exist_is_wrong_usage(program):
    config = write_kubeconfig(program, "https://127.0.0.1:1")
    done = program.run("list", "--on", "kubernetes", "--kubeconfig", config, "--context", "there")
    assert done.returncode == 2
    assert "'there'" in done.stderr
    assert "known: here" in done.stderr


@pytest.mark.parametrize("option", ["--context", "--kubeconfig"])
def test_a_cluster_is_not_chosen_for_jobs_on_this_machine(program, option):
    done = program.run("list", option, "x")
    assert done.returncode == 2
    assert f"{option} choose a cluster, but jobs run local; add `--on kubernetes`" in done.stderr


@pytest.mark.parametrize("option", [["--code-url", "https://x/y"], ["--code-volume", "c"], ["--no-code"]])
def test_code_is_not_brought_to_where_it_is(program, option):
    program.write("train.py", "")
    done = program.run("run", *option, "train.py")
    assert done.returncode == 2
    assert f"{option[0]} says how code gets to a cluster" in done.stderr


def test_files_are_checked_and_rendered_without_a_cluster(program):
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "demo"},
        "spec": {"runtimeRef": {"name": "plain"}},
    }
    program.write("job.yaml", yaml.safe_dump(job))
    for verb in ("validate", "render"):
        done = program.run(verb, "--on", "kubernetes", "-f", "job.yaml")
        assert done.returncode == 0, done.stderr
    assert program.succeed("render", "--on", "kubernetes", "-f", "job.yaml") == program.succeed(
        "render", "-f", "job.yaml"
    )
    config = write_kubeconfig(program, "https://127.0.0.1:1")
    live = program.run("render", "--live", "--on", "kubernetes", "--kubeconfig", config, "-f", "job.yaml")
    assert live.returncode == 4


# What an API server answers, and the error that it means. The bodies are those of Kubernetes 1.36.
ANSWERS: dict[str, tuple[int, dict[str, object], type[UserError], int, str]] = {
    "a kind that is not served": (
        404,
        {"reason": "NotFound", "message": "the server could not find the requested resource", "details": {}},
        NotInstalled,
        4,
        "the operator is not installed there; `trainwright install`",
    ),
    "an object that is not there": (
        404,
        {
            "reason": "NotFound",
            "message": 'trainjobs.trainer.kubeflow.org "x" not found',
            "details": {"name": "x"},
        },
        NotFound,
        3,
        '"x" not found',
    ),
    "a missing right": (
        403,
        {
            "reason": "Forbidden",
            "message": 'trainjobs is forbidden: User "eve" cannot list resource "trainjobs"',
        },
        Forbidden,
        1,
        'cannot list resource "trainjobs"; ask whoever gives out rights',
    ),
    "a webhook's verdict": (
        403,
        {
            "reason": "Forbidden",
            "message": 'admission webhook "validator.x" denied the request: spec.runtimeRef: no such runtime',
            "details": {"causes": [{"field": "spec.runtimeRef", "message": "no such runtime"}]},
        },
        InvalidObject,
        2,
        "spec.runtimeRef: no such runtime",
    ),
    "a foreign webhook's verdict": (
        403,
        {"reason": "Forbidden", "message": 'admission webhook "policy" denied the request: no GPUs today'},
        InvalidObject,
        2,
        "no GPUs today",
    ),
    "a full quota": (
        403,
        {"reason": "Forbidden", "message": "exceeded quota: objects, requested: 1, used: 5, limited: 5"},
        Forbidden,
        1,
        "exceeded quota",
    ),
    "fields of others": (
        409,
        {
            "reason": "Conflict",
            "message": 'Apply failed with 1 conflict: conflict with "kubectl": .spec.suspend',
            "details": {
                "causes": [
                    {
                        "reason": "FieldManagerConflict",
                        "message": 'conflict with "kubectl" using trainer.kubeflow.org/v1alpha1',
                        "field": ".spec.suspend",
                    }
                ]
            },
        },
        FieldsOfOthers,
        1,
        ".spec.suspend",
    ),
    "a name that is taken": (
        409,
        {"reason": "AlreadyExists", "message": '"x" already exists'},
        AlreadyExists,
        2,
        "already exists",
    ),
    "credentials that have expired": (
        401,
        {"reason": "Unauthorized", "message": "Unauthorized"},
        UserError,
        4,
        "does not accept your credentials",
    ),
}


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
async def test_a_refusal_is_put_into_words_about_jobs(case):
    code, body, kind, exit_code, said = case
    async with answering(code, {"kind": "Status", "code": code, **body}) as transport:
        with pytest.raises(kind, match=re.escape(said)) as refused:
            await transport.request(
                Request(method="GET", path="/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs")
            )
    assert said in str(refused.value)
    assert refused.value.exit_code == exit_code


async def test_the_managers_of_fields_are_known():
    code, body, *_ = ANSWERS["fields of others"]
    async with answering(code, {"kind": "Status", "code": code, **body}) as transport:
        with pytest.raises(FieldsOfOthers) as refused:
            await transport.request(Request(method="PATCH", path="/api/v1/pods"))
    assert refused.value.managers == {"kubectl"}


@asynccontextmanager
async def answering(code: int, body: dict[str, object]) -> AsyncIterator[ExplainingTransport]:
    """Serve one answer to every request."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=code)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with AiohttpTransport(Connection(server=server)) as transport:
            yield ExplainingTransport(transport, server)
    finally:
        await runner.cleanup()
