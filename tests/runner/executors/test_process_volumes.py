"""Volumes of real processes: at their real paths in a namespace, else by rewritten paths and links."""

from __future__ import annotations

import asyncio
from pathlib import Path

from runner.executors.pods import complete, context, end, pod, read_log, shell, until_exists


def exists(path: str) -> bool:
    return Path(path).exists()


CONFIG_MAP = {"cm": {"hostfile": b"a slots=2\n", "script.sh": b"#!/bin/sh\necho hello\n"}}


async def test_volumes_are_at_their_real_paths_and_the_host_does_not_change(namespaces, folder):
    script = """
      cat /etc/trainwright-test/mpi/hostfile
      cat /trainwright-test/deep/dataset/key
      echo written > /trainwright-test/deep/scratch/file && cat /trainwright-test/deep/scratch/file
      /etc/trainwright-test/mpi/script.sh
      touch /etc/trainwright-test/mpi/new 2>&1 | grep -o 'Read-only file system'
      ls /usr/bin/env; cat /proc/1/comm >/dev/null && echo proc
    """
    body = shell(
        script,
        volumeMounts=[
            {"name": "config", "mountPath": "/etc/trainwright-test/mpi"},
            {"name": "data", "mountPath": "/trainwright-test/deep/dataset", "readOnly": True},
            {"name": "scratch", "mountPath": "/trainwright-test/deep/scratch"},
        ],
    )
    claim = folder.parent.parent / "claim"
    claim.mkdir()
    (claim / "key").write_text("data\n")
    volumes = [
        {"name": "config", "configMap": {"name": "cm", "defaultMode": 0o755}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    surroundings = context(folder, config_maps=CONFIG_MAP, claims={"data": claim})
    status = await complete(namespaces, pod(body, volumes=volumes), surroundings)
    assert status.phase == "Succeeded", read_log(folder)
    assert read_log(folder).splitlines() == [
        "a slots=2", "data", "written", "hello", "Read-only file system", "/usr/bin/env", "proc",
    ]  # fmt: skip
    # Of the whole host nothing can be said: others change it, too.
    assert not exists("/trainwright-test")
    assert not exists("/etc/trainwright-test")
    assert sorted(path.name for path in folder.iterdir()) == ["began", "node.log"]


async def test_a_volume_may_be_mounted_inside_another_and_a_single_file_over_a_file(namespaces, folder):
    script = "cat /trainwright-a/b/hostfile /etc/hostname; ls /trainwright-a/b"
    body = shell(
        script,
        volumeMounts=[
            {"name": "config", "mountPath": "/trainwright-a/b"},
            {"name": "scratch", "mountPath": "/trainwright-a"},
            {"name": "config", "mountPath": "/etc/hostname", "subPath": "hostfile"},
        ],
    )
    volumes = [{"name": "config", "configMap": {"name": "cm"}}, {"name": "scratch", "emptyDir": {}}]
    await complete(namespaces, pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    assert read_log(folder).split("\n")[:4] == ["a slots=2", "a slots=2", "hostfile", "script.sh"]


async def test_a_mount_point_among_ones_own_files_hides_nothing(namespaces, folder, tmp_path):
    """What a script saves beside a missing mount point is there after the pod; the mount point is not."""
    work = tmp_path / "work"
    work.mkdir()
    body = shell(
        f"echo kept > {work}/result; echo x > {work}/cache/x",
        volumeMounts=[{"name": "scratch", "mountPath": f"{work}/cache"}],
    )
    status = await complete(
        namespaces,
        pod(body, volumes=[{"name": "scratch", "emptyDir": {}}]),
        context(folder, working_directory=work),
    )
    assert status.phase == "Succeeded", read_log(folder)
    assert [path.name for path in work.iterdir()] == ["result"]


async def test_the_mount_point_of_two_pods_goes_with_the_second(namespaces, folder, tmp_path):
    """A short and a long pod mount their own volumes at a path that the host does not have.

    1. Both run. 2. The short one ends. 3. The long one still has its volume. 4. It ends, and the path goes.
    """
    work = tmp_path / "work"
    work.mkdir()
    script = (
        f"echo $0 > {work}/a/b/name; echo up > {work}/$0; while [ ! -e {work}/go-$0 ]; do sleep 0.01; done; "
    )
    runs = {}
    for name in ("short", "long"):
        body = shell("", volumeMounts=[{"name": "scratch", "mountPath": f"{work}/a/b"}])
        body["command"] = ["sh", "-c", f"{script} cat {work}/a/b/name", name]
        runs[name] = await namespaces.start(
            pod(body, name=f"demo-{name}-0-0-abcde", volumes=[{"name": "scratch", "emptyDir": {}}]),
            context(folder.parent / name, working_directory=work, mount_points=tmp_path / "mount-points"),
        )
    for name in runs:
        assert await until_exists(work / name) == "up\n"
    assert list((work / "a" / "b").iterdir()) == []
    for name, left in {"short": ["a"], "long": []}.items():
        (work / f"go-{name}").touch()
        assert (await end(runs[name])).phase == "Succeeded"
        assert read_log(folder.parent / name) == f"{name}\n"
        assert [path.name for path in work.iterdir() if path.is_dir()] == left
    assert list((tmp_path / "mount-points").iterdir()) == []


async def test_containers_that_start_at_once_share_what_they_need_on_the_host(namespaces, folder, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    names = [f"c{number}" for number in range(8)]
    containers = [
        shell(
            f"echo {name} > {work}/shared/{name}/here",
            name=name,
            volumeMounts=[{"name": "scratch", "mountPath": f"{work}/shared/{name}"}],
        )
        for name in names
    ]
    body = pod(*containers, volumes=[{"name": "scratch", "emptyDir": {}}])
    surroundings = context(folder, working_directory=work, mount_points=tmp_path / "mount-points")
    status = await complete(namespaces, body, surroundings)
    assert [ended.state.terminated.message for ended in status.container_statuses] == [""] * len(names)
    assert status.phase == "Succeeded"
    assert (list(work.iterdir()), list((tmp_path / "mount-points").iterdir())) == ([], [])


async def test_memory_is_limited_and_private(namespaces, folder):
    body = shell(
        "head -c 3000000 /dev/zero > /dev/shm/big || echo full; df --output=size /dev/shm | tail -1",
        volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
    )
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    await complete(namespaces, pod(body, volumes=volumes), context(folder))
    assert read_log(folder).split()[-2:] == ["full", "1024"]


async def test_without_namespaces_mount_paths_are_rewritten(processes, folder):
    body = shell(
        "cat /etc/trainwright-test/hostfile $FILE; echo x > /trainwright-test/x; "
        "cat /trainwright-test/in/hostfile",
        env=[{"name": "FILE", "value": "/etc/trainwright-test/hostfile"}],
        volumeMounts=[
            {"name": "config", "mountPath": "/etc/trainwright-test"},
            {"name": "scratch", "mountPath": "/trainwright-test"},
            {"name": "config", "mountPath": "/trainwright-test/in"},
        ],
    )
    volumes = [{"name": "config", "configMap": {"name": "cm"}}, {"name": "scratch", "emptyDir": {}}]
    status = await complete(processes, pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    assert status.phase == "Succeeded", read_log(folder)
    assert read_log(folder) == "a slots=2\n" * 3


async def test_without_namespaces_a_path_that_nothing_mentions_becomes_a_link(processes, folder, tmp_path):
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/made/for/config/hostfile\n")
    script.chmod(0o755)
    body = shell(
        "",
        command=[str(script)],
        volumeMounts=[{"name": "config", "mountPath": f"{tmp_path}/made/for/config"}],
    )
    volumes = [{"name": "config", "configMap": {"name": "cm"}}]
    await complete(processes, pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    assert read_log(folder) == "a slots=2\n"
    assert not (tmp_path / "made").exists()


async def test_without_namespaces_a_path_that_cannot_be_had_is_said(processes, folder):
    body = shell("true", volumeMounts=[{"name": "config", "mountPath": "/proc/trainwright"}])
    volumes = [{"name": "config", "configMap": {"name": "cm"}}]
    run = await processes.start(pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    waiting = run.status.container_statuses[0].state.waiting
    assert waiting.reason == "CreateContainerConfigError"
    assert 'volume "config" cannot be mounted at /proc/trainwright' in waiting.message
    await run.stop(0)


async def test_two_pods_with_the_same_paths_do_not_disturb_each_other(namespaces, tmp_path):
    async def run(number: int) -> str:
        body = shell(
            f"echo {number} > /trainwright-shared/n; sleep 0.1; cat /trainwright-shared/n",
            volumeMounts=[{"name": "scratch", "mountPath": "/trainwright-shared"}],
        )
        folder = tmp_path / f"demo-node-0-{number}-abcde"
        name = folder.name
        await complete(
            namespaces, pod(body, name=name, volumes=[{"name": "scratch", "emptyDir": {}}]), context(folder)
        )
        return read_log(folder)

    assert await asyncio.gather(run(0), run(1)) == ["0\n", "1\n"]
