"""Flux jobs as a whole: what is written, how large it is, and that it is always the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from frameworks.flux.builders import env, flux_runtime
from template.builders import container, runtime, train_job
from trainwright.admission import default_train_job, validate_train_job
from trainwright.api.encoding import encode_canonical
from trainwright.api.meta import Json
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.render import render

MEBIBYTE = 1024 * 1024
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def render_job(spec: RuntimeSpec | None = None, name: str = "demo", **trainer: Any) -> list[Json]:
    return render(
        train_job(Trainer(**trainer) if trainer else None, name=name), runtime(spec or flux_runtime())
    )


def get_node(objects: list[Json]) -> Json:
    [job] = objects[-1]["spec"]["replicatedJobs"]
    [node] = job["template"]["spec"]["template"]["spec"]["containers"]
    found: Json = node
    return found


def test_what_is_mounted_is_written_before_the_job_set() -> None:
    objects = render_job(num_nodes=2)
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in objects] == [
        ("Secret", "demo-flux-curve"),
        ("ConfigMap", "demo-flux-entrypoint"),
        ("JobSet", "demo"),
    ]
    owner = objects[-1]["metadata"]["ownerReferences"]
    assert [obj["metadata"]["ownerReferences"] for obj in objects[:-1]] == [owner, owner]


def test_the_certificate_is_in_nothing_that_is_rendered() -> None:
    secret = render_job()[0]
    assert secret.keys() == {"apiVersion", "kind", "metadata", "type", "immutable"}
    assert (secret["immutable"], secret["type"]) == (True, "Opaque")


def test_r05_a_job_without_a_trainer_block_has_the_nodes_of_the_policy() -> None:
    objects = render_job(flux_runtime(num_nodes=2))
    [job] = objects[-1]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["completions"] == 2
    assert "hosts='demo-node-0-[0-1]'\n" in objects[1]["data"]["init.sh"]


def test_r05_a_policy_without_a_number_of_nodes_means_one() -> None:
    assert "hosts='demo-node-0-[0]'\n" in render_job(flux_runtime(num_nodes=None))[1]["data"]["init.sh"]


def test_arguments_of_the_job_take_the_place_of_the_runtimes() -> None:
    spec = flux_runtime(container(command=["run"], args=["old"]))
    assert get_node(render_job(spec, args=["new", "$HOME"]))["args"] == ["new", "$HOME"]
    assert get_node(render_job(spec, num_nodes=1))["args"] == ["old"]


def test_variables_of_the_job_are_set_by_plain_beside_it() -> None:
    node = get_node(render_job(flux_runtime(container(env=env(A="old", B="2"))), env=env(A="1")))
    assert node["env"] == env(A="1", B="2")


def test_the_same_job_renders_to_the_same_bytes() -> None:
    first, second = (encode_canonical(render_job(num_nodes=2, command=["a"])) for _ in range(2))
    assert first == second


def test_ten_thousand_nodes_with_the_longest_name_are_small_and_quick() -> None:
    longest = "a" * (63 - len("-node-0-9999-xxxxx"))
    trainer = Trainer(num_nodes=10_000, num_proc_per_node=128)
    job = default_train_job(train_job(trainer, name=longest), None, NOW)
    assert validate_train_job(job, runtime(flux_runtime())).errors == ()
    times = []
    for _ in range(5):
        start = perf_counter()
        objects = render(job, runtime(flux_runtime()))
        times.append(perf_counter() - start)
    assert min(times) < 0.06
    assert max(len(json.dumps(obj)) for obj in objects) < MEBIBYTE // 10
