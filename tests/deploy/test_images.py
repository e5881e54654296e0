"""The images of the runtimes: what their Containerfiles say, since no registry can be asked here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.runtimes import load_shipped_runtimes

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "deploy/images"
FILES = {path.parent.name: path for path in sorted(IMAGES.glob("*/Containerfile"))}
OF_MPI = {"deepspeed", "intel-mpi", "mlx", "mpich", "openmpi"}
# The package that gives an image its version.
MAIN_PACKAGE = {"intel-mpi": "impi-rt"}
# What volumes of a claim belong to, and so the initializers that fill them.
AS_ROOT = {"torchtune"}


def read_instructions(name: str) -> list[tuple[str, str]]:
    """Return instructions and what follows them, with continued lines joined."""
    lines = [line for line in FILES[name].read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def list_values(name: str, instruction: str) -> list[str]:
    return [rest for word, rest in read_instructions(name) if word == instruction]


def read_pins(file: Path) -> dict[str, str]:
    """Return the version of each package of a compiled file, all of which have hashes."""
    pins: dict[str, str] = {}
    for block in re.split(r"\n(?=[a-z])", file.read_text()):
        found = re.match(r"([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)", block)
        assert found, block
        assert "--hash=sha256:" in block
        pins[found[1]] = found[2]
    return pins


def find_requirements(name: str) -> Path:
    [copied] = [rest for rest in list_values(name, "COPY") if rest.endswith("/tmp/requirements.txt")]
    return ROOT / copied.split()[0]


def iterate_own_images() -> Iterator[tuple[str, str, str]]:
    """Runtime, image and tag of every image of ours that a shipped runtime names."""
    for name, runtime in load_shipped_runtimes().items():
        spec = build_object(runtime)["spec"]["template"]["spec"]
        pods: list[Json] = [job["template"]["spec"]["template"]["spec"] for job in spec["replicatedJobs"]]
        for image in {container["image"] for pod in pods for container in pod["containers"]}:
            if image.startswith("trainwright/"):
                yield name, *image.removeprefix("trainwright/").split(":")


@pytest.mark.parametrize(("runtime", "image", "tag"), list(iterate_own_images()))
def test_an_image_of_ours_can_be_built_in_the_version_that_a_runtime_names(
    runtime: str, image: str, tag: str
) -> None:
    assert read_pins(find_requirements(image))[MAIN_PACKAGE.get(image, image)] == tag
    assert f"-t trainwright/{image}:{tag} ." in FILES[image].read_text()
    assert runtime in FILES[image].read_text()


@pytest.mark.parametrize("name", FILES)
def test_the_command_in_a_file_names_file_and_version(name: str) -> None:
    text = FILES[name].read_text()
    found = re.search(
        rf"podman build -f deploy/images/{name}/Containerfile -t trainwright/{name}:(\S+) \.\n", text
    )
    assert found
    assert found[1] == read_pins(find_requirements(name))[MAIN_PACKAGE.get(name, name)]


@pytest.mark.parametrize("name", FILES)
def test_the_base_is_pinned_and_may_be_another(name: str) -> None:
    [argument] = list_values(name, "ARG")
    variable, _, base = argument.partition("=")
    tag = base.rpartition("/")[2].partition(":")[2]
    assert (variable, list_values(name, "FROM")) == ("BASE", ["${BASE}"])
    assert re.search(r"\d+\.\d+", tag)


@pytest.mark.parametrize("name", FILES)
def test_an_image_does_not_run_as_root_without_a_reason(name: str) -> None:
    user = list_values(name, "USER")[-1]
    assert user == ("0:0" if name in AS_ROOT else "1000:1000")


@pytest.mark.parametrize("name", FILES)
def test_everything_comes_from_the_tree_or_from_pinned_packages(name: str) -> None:
    assert list_values(name, "ADD") == []
    text = FILES[name].read_text()
    assert "://" not in text
    assert not re.search(r"\b(curl|wget|git)\b", text)
    for copied in list_values(name, "COPY"):
        *sources, _ = [word for word in copied.split() if not word.startswith("--")]
        for source in sources:
            assert (ROOT / source).is_file()
    installed = [rest for rest in list_values(name, "RUN") if "pip install" in rest]
    assert installed
    assert all("--require-hashes -r /tmp/requirements.txt" in rest for rest in installed)


@pytest.mark.parametrize("name", sorted(set(FILES) - {"intel-mpi", "mpich", "openmpi"}))
def test_what_is_asked_for_is_what_is_compiled(name: str) -> None:
    pins = read_pins(IMAGES / name / "requirements.txt")
    for line in (IMAGES / name / "requirements.in").read_text().splitlines():
        found = re.match(r"([a-z0-9-]+)(?:\[[a-z0-9]+\])?(?:==(\S+))?", line)
        if found is not None:
            assert found[1] in pins
            assert found[2] in (None, pins[found[1]])


def test_every_image_with_packages_of_its_own_can_be_compiled_anew() -> None:
    script = (IMAGES / "compile").read_text()
    table = script.split("images='\n")[1].split("\n'")[0]
    listed = [line.split()[0] for line in table.splitlines()]
    assert listed == sorted(path.parent.name for path in IMAGES.glob("*/requirements.in"))


def test_the_ssh_server_is_where_the_mpi_runtimes_look_for_it() -> None:
    settings = dict(
        line.split(" ", 1)
        for line in (IMAGES / "ssh/sshd_config").read_text().splitlines()
        if line and not line.startswith("#")
    )
    client = (IMAGES / "ssh/ssh_config").read_text()
    seen = 0
    for runtime in load_shipped_runtimes().values():
        spec = build_object(runtime)["spec"]
        if "mpi" not in spec["mlPolicy"]:
            continue
        seen += 1
        keys = spec["mlPolicy"]["mpi"]["sshAuthMountPath"]
        node = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        [container] = node["containers"]
        port = container["readinessProbe"]["tcpSocket"]["port"]
        assert settings["Port"] == str(port)
        assert f"  Port {port}\n" in client
        assert settings["HostKey"] == f"{keys}/id_rsa"
        assert settings["StrictModes"] == "no"
        assert container["securityContext"]["runAsUser"] == node["securityContext"]["fsGroup"] == 1000
        configuration = container["args"][container["args"].index("-f") + 1]
        for image in OF_MPI:
            assert f"--chown=1000:1000 deploy/images/ssh/sshd_config {configuration}" in list_values(
                image, "COPY"
            )
            # The package of Debian makes keys, which every pod of the image would share.
            assert any("rm -f /etc/ssh/ssh_host_*" in rest for rest in list_values(image, "RUN"))
    assert seen == 5
