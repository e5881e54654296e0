"""The Flux framework: an init container, two scripts, a certificate and a command (spec 02 section 9.2)."""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import (
    CURVE_CERTIFICATE_GENERATOR,
    FLUX_CURVE_SUFFIX,
    FLUX_SCRIPTS_SUFFIX,
    NODE,
)
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError
from trainwright.frameworks.contract import ContainerAddition, Contribution, GeneratedSecret, PodAddition
from trainwright.frameworks.flux.checks import INSTALLER, find_errors, list_warnings
from trainwright.frameworks.flux.scripts import ENTRYPOINT_SCRIPT, INIT_SCRIPT, build_scripts
from trainwright.frameworks.flux.settings import read_settings
from trainwright.template.layout import JobLayout

SCRIPTS_MOUNT: Final = "/etc/flux-config"
_FLUX_VOLUME: Final = "flux-install"
_FLUX_MOUNT: Final = "/mnt/flux"
_SOFTWARE_VOLUME: Final = "spack-install"
_CURVE_VOLUME: Final = "flux-curve"
_MEMORY_VOLUME: Final = "shared-memory"
_MEMORY_MOUNT: Final = "/dev/shm"  # noqa: S108 (named, not written to)
_MAX_VOLUME_NAME: Final = 63
# What a quota of a namespace may demand of every container. The pod needs it for its trainer anyway.
_BASIC_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


class Flux:
    """Brokers in all pods of the first trainer step; the first pod leads. Plain brings the variables."""

    name = "flux"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has a flux block."""
        return policy is not None and policy.flux is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return what would leave brokers without Flux, or without a rank."""
        return find_errors(layout)

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return what may leave GPUs idle, the command unfound or the certificate unread."""
        return list_warnings(layout)

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return the certificate, the scripts, and pods that run them."""
        trainer = layout.trainer_pod_set
        node = trainer.find_container(NODE) if trainer else None
        if trainer is None or node is None:
            return Contribution()
        settings = read_settings(layout)
        scripts, curve = f"{layout.job_name}{FLUX_SCRIPTS_SUFFIX}", f"{layout.job_name}{FLUX_CURVE_SUFFIX}"
        scripts_volume = _build_scripts_volume(scripts)
        command = layout.trainer.command or node.get("command") or ()
        has_memory = any(mount.get("mountPath") == _MEMORY_MOUNT for mount in node.get("volumeMounts") or ())
        scripts_mount = _mount(scripts_volume["name"], SCRIPTS_MOUNT, readOnly=True)
        addition = PodAddition(
            containers={
                NODE: ContainerAddition(
                    command=("/bin/sh", f"{SCRIPTS_MOUNT}/{ENTRYPOINT_SCRIPT}", *command),
                    volume_mounts=(
                        _mount(_FLUX_VOLUME, _FLUX_MOUNT),
                        _mount(_SOFTWARE_VOLUME, "/opt/software"),
                        scripts_mount,
                        _mount(_CURVE_VOLUME, "/curve", readOnly=True),
                        # A runtime's own may have a limit of its size.
                        *(() if has_memory else (_mount(_MEMORY_VOLUME, _MEMORY_MOUNT),)),
                    ),
                )
            },
            volumes=(
                {"name": _SOFTWARE_VOLUME, "emptyDir": {}},
                {"name": _FLUX_VOLUME, "emptyDir": {}},
                scripts_volume,
                *(() if has_memory else ({"name": _MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}},)),
                {"name": _CURVE_VOLUME, "secret": {"secretName": curve, "defaultMode": 0o400}},
            ),
            init_containers=(_build_installer(settings.view_image, node, scripts_mount),),
        )
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": scripts},
            "data": build_scripts(layout, trainer, settings),
        }
        return Contribution(
            pods={trainer.name: addition},
            secrets=(GeneratedSecret(name=curve, generator=CURVE_CERTIFICATE_GENERATOR),),
            objects=(config_map,),
        )


def _build_installer(image: str, node: Json, scripts_mount: Json) -> Json:
    """Return the init container that brings Flux in. It runs as the trainer container does."""
    resources = {
        group: kept
        for group, amounts in (node.get("resources") or {}).items()
        if group in ("limits", "requests")
        and (kept := {name: amounts[name] for name in _BASIC_RESOURCES if name in (amounts or {})})
    }
    context = node.get("securityContext")
    return {
        "name": INSTALLER,
        "image": image,
        "command": ["/bin/bash", f"{SCRIPTS_MOUNT}/{INIT_SCRIPT}"],
        "volumeMounts": [_mount(_FLUX_VOLUME, _FLUX_MOUNT), scripts_mount],
        **({"resources": resources} if resources else {}),
        **({"securityContext": context} if context else {}),
    }


def _build_scripts_volume(config_map: str) -> Json:
    """Return the volume of the scripts, called like its ConfigMap where that is not too long for a volume."""
    name = config_map if len(config_map) <= _MAX_VOLUME_NAME else FLUX_SCRIPTS_SUFFIX.removeprefix("-")
    return {"name": name, "configMap": {"name": config_map, "defaultMode": 0o755}}


def _mount(volume: str, path: str, **fields: bool) -> Json:
    return {"name": volume, "mountPath": path, **fields}
