"""Names of what lets a pod of a TrainJob report its progress to the operator.

Who makes pods (`render`) and who answers them (`control`, `operator`) meet here. All of it is part of the
wire contract unless a comment says that it is ours. Source: spec 03 sections 1.2 and 1.3.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import API_VERSION

# In a pod: a projected volume with a token and the certificates of the authority that vouches for the server.
TOKEN_VOLUME: Final = "kubeflow-trainer-token"  # noqa: S105 (a name)
FOLDER: Final = "/var/run/secrets/kubeflow/trainer"
TOKEN_FILE: Final = "token"  # noqa: S105 (a name)
TOKEN_SECONDS: Final = 3600

# The ConfigMap of a TrainJob with those certificates.
AUTHORITY_SUFFIX: Final = "-tls-config"
AUTHORITY_KEY: Final = "ca.crt"
AUTHORITY_LABEL: Final = "trainer.kubeflow.org/progress-authority"  # ours: by it they are watched


def build_report_path(namespace: str, name: str) -> str:
    """Return the path at which the TrainJob's reports are taken."""
    return f"/apis/{build_audience(namespace, name)}"


def build_audience(namespace: str, name: str) -> str:
    """Return the audience of the tokens that may report for the TrainJob; an API server refuses them."""
    return f"{API_VERSION}/namespaces/{namespace}/trainjobs/{name}/status"
