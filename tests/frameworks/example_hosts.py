"""A whole framework, as docs/how-to/add-a-framework.md shows it: a file with the addresses of all nodes."""

from __future__ import annotations

from trainwright.api.constants import NODE
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    PodAddition,
    find_reserved_env_errors,
)
from trainwright.template.layout import JobLayout

HOST_FILE_ENV = "HOST_FILE"


class Hosts:
    """Programs that read the addresses of all nodes from a file."""

    name = "hosts"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime has no policy; a real framework looks at its own field of the policy."""
        return policy is None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return an error where the job sets the variable itself."""
        return find_reserved_env_errors(layout.trainer, {HOST_FILE_ENV}, self.name)

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
        addresses = "\n".join(layout.iterate_endpoints(trainer))
        host_file = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"hosts": addresses},
        }
        node = ContainerAddition(
            env=({"name": HOST_FILE_ENV, "value": "/etc/hosts.d/hosts"},),
            volume_mounts=({"name": "hosts", "mountPath": "/etc/hosts.d", "readOnly": True},),
        )
        pod = PodAddition(containers={NODE: node}, volumes=({"name": "hosts", "configMap": {"name": name}},))
        return Contribution(pods={trainer.name: pod}, objects=(host_file,))
