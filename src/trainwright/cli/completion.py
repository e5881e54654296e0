"""What the shell offers for names of jobs and runtimes. Never fails: at worst nothing is offered."""

from __future__ import annotations


def complete_job_names(incomplete: str) -> list[str]:
    """Return the names of jobs that begin so."""
    return _list_names(["TrainJob"], incomplete)


def complete_runtime_names(incomplete: str) -> list[str]:
    """Return the names of installed and shipped runtimes that begin so."""
    return _list_names(["TrainingRuntime", "ClusterTrainingRuntime"], incomplete)


def _list_names(kinds: list[str], incomplete: str) -> list[str]:
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Target, Where

    async def _read(target: Target) -> list[str]:
        scopes = {kind: None if kind.startswith("Cluster") else target.namespace for kind in kinds}
        lists = [await target.cluster.list(kind, scope) for kind, scope in scopes.items()]
        return [item["metadata"]["name"] for found in lists for item in found.items]

    try:
        names = run_on_target(Where(), _read)
        if "ClusterTrainingRuntime" in kinds:
            from trainwright.runtimes import load_shipped_runtimes

            names += list(load_shipped_runtimes())
    except Exception:  # noqa: BLE001 (a traceback in the middle of someone's command line helps nobody)
        return []
    return sorted({name for name in names if name.startswith(incomplete)})
