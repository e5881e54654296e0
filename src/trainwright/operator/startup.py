"""From flags, files and environment to the settings of the process."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from trainwright.cluster.kube.config import load_connection
from trainwright.errors import UsageError
from trainwright.operator.configuration import Configuration, parse_configuration
from trainwright.operator.feature_gates import parse_feature_gates, resolve_feature_gates
from trainwright.operator.process import Settings
from trainwright.plugins import load_frameworks


def build_settings(
    environment: Mapping[str, str],
    *,
    config: Path | None = None,
    feature_gates: str = "",
    kubeconfig: Path | None = None,
    namespace: str | None = None,
) -> Settings:
    """Return how to run. Raises UserError for what is wrong with a flag or a file."""
    configuration = _read_configuration(config)
    gates = resolve_feature_gates(configuration.feature_gates or {}, parse_feature_gates(feature_gates))
    if kubeconfig is not None:
        if not kubeconfig.exists():
            raise UsageError(f"--kubeconfig: {kubeconfig} does not exist")
        environment = {**environment, "KUBECONFIG": str(kubeconfig)}
    home = Path(environment.get("HOME", "/"))
    connection = load_connection(environment, home)
    if own := environment.get("POD_NAMESPACE"):
        connection = msgspec.structs.replace(connection, namespace=own)
    return Settings(
        configuration=msgspec.structs.replace(configuration, feature_gates=gates),
        connection=connection,
        # As the peer names its replicas: a host may have had an earlier process of ours.
        identity=f"{environment.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}",
        namespace=namespace or None,
        frameworks=load_frameworks(),
    )


def _read_configuration(path: Path | None) -> Configuration:
    if path is None:
        return Configuration()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: cannot read {path}: {error}") from error
    return parse_configuration(text, str(path))
