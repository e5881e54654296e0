"""The texts of the two scripts: what is assigned before their bodies, and that it is nothing but words."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings

from frameworks.flux.builders import env, flux_layout, flux_runtime
from frameworks.flux.strategies import texts
from trainwright.api.pod import ResourceRequirements
from trainwright.frameworks.flux.scripts import build_scripts
from trainwright.frameworks.flux.settings import read_settings
from trainwright.template.layout import JobLayout

FOUR_GPUS = ResourceRequirements(limits={"nvidia.com/gpu": "4"})


def build(layout: JobLayout) -> dict[str, str]:
    assert layout.trainer_pod_set is not None
    return build_scripts(layout, layout.trainer_pod_set, read_settings(layout))


def read_variables(script: str, *names: str) -> list[str]:
    """Let a shell say what the variables are that stand before the body."""
    head = script[: script.index("\n\n#")]
    shown = "".join(f'printf "%s\\0" "${name}"\n' for name in names)
    told = subprocess.run(["/bin/sh", "-c", f"{head}\n{shown}"], check=True, capture_output=True)
    return told.stdout.decode().split("\0")[:-1]


def test_what_the_entrypoint_is_told() -> None:
    script = build(flux_layout(flux_runtime(tasks=2), num_nodes=3, resources_per_node=FOUR_GPUS))[
        "entrypoint.sh"
    ]
    names = ("hosts", "lead", "run_flags", "resources")
    assert dict(zip(names, read_variables(script, *names), strict=True)) == {
        "hosts": "demo-node-0-[0-2]",
        "lead": "demo-node-0-0",
        "run_flags": "-N 3 -n 6 -g 2",
        "resources": "--cores=0-1 --gpu=0-3",
    }


def test_what_the_init_script_is_told() -> None:
    script = build(flux_layout(env=env(FLUX_NETWORK_DEVICE="ib0")))["init.sh"]
    assert read_variables(script, "hosts", "host_prefix", "default_bind", "default_port") == [
        "demo-node-0-[0]",
        "demo-node-0-",
        '"tcp://ib0:%p"',
        "8050",
    ]


@settings(max_examples=30)
@given(texts)
def test_no_setting_becomes_part_of_the_program(text: str) -> None:
    plain, awkward = (
        build(flux_layout(env=env(FLUX_QUEUE_POLICY=chosen)))["init.sh"] for chosen in ("fcfs", text)
    )
    assert awkward.partition("\ndefault_bind=")[2] == plain.partition("\ndefault_bind=")[2]
    [hosts, bind] = read_variables(awkward, "hosts", "default_bind")
    assert (hosts, bind) == ("demo-node-0-[0]", '"tcp://eth0:%p"')


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("name", ["init.sh", "entrypoint.sh"])
def test_shells_can_read_them(shell: str, name: str) -> None:
    script = build(flux_layout())[name]
    told = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


def test_nothing_of_the_job_but_names_and_numbers_is_in_them() -> None:
    secret = "word-of-the-user"
    scripts = build(flux_layout(command=[secret], args=[secret], env=env(TOKEN=secret)))
    assert not any(secret in text for text in scripts.values())
