"""A whole framework in a package of its own: a file with the addresses of all nodes, one a line."""

from __future__ import annotations

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import ContainerAddition, Contribution, PodAddition, is_chosen
from trainwright.frameworks.contract import find_reserved_env_errors
from trainwright.template.layout import JobLayout

HOST_FILE_ENV = "HOST_FILE"


class Hosts:
    """Programs that read the addresses of all nodes from a file. Parameter `folder`: where it is."""

    name = "hosts"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime says `custom: {framework: hosts}`."""
        return is_chosen(policy, self.name)

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return an error for a parameter that there is not, and where the job sets the variable itself."""
        unknown = [
            FieldError(
                path="spec.runtimeRef",
                rule=Rule.UNKNOWN,
                detail=f"spec.mlPolicy.custom.parameters.{name} of the runtime: unknown; known is folder",
                value=name,
            )
            for name in get_parameters(layout)
            if name != "folder"
        ]
        return unknown + find_reserved_env_errors(layout.trainer, {HOST_FILE_ENV}, self.name)

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return a warning where there is nobody to find."""
        trainer = layout.trainer_pod_set
        return ["one node alone needs no host file"] if trainer and trainer.count == 1 else []

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return a ConfigMap of addresses, and how the trainer container comes to see it."""
        trainer = layout.trainer_pod_set
        if trainer is None:
            return Contribution()
        name = f"{layout.job_name}-hosts"
        folder = get_parameters(layout).get("folder", "/etc/hosts.d")
        host_file = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"hosts": "\n".join(layout.iterate_endpoints(trainer))},
        }
        node = ContainerAddition(
            env=({"name": HOST_FILE_ENV, "value": f"{folder}/hosts"},),
            volume_mounts=({"name": "hosts", "mountPath": folder, "readOnly": True},),
        )
        pod = PodAddition(containers={NODE: node}, volumes=({"name": "hosts", "configMap": {"name": name}},))
        return Contribution(pods={trainer.name: pod}, objects=(host_file,))


def get_parameters(layout: JobLayout) -> Json:
    """Return what the runtime gives the framework."""
    custom = layout.policy.custom if layout.policy else None
    return (custom.parameters if custom else None) or {}
