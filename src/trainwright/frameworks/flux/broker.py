"""The configuration of the brokers, in TOML (spec 02 section 9.5)."""

from __future__ import annotations

import json
from typing import Final

from trainwright.frameworks.flux.settings import Settings

CONFIG_ROOT: Final = "/mnt/flux/config"
PORT: Final = 8050


def build_broker_config(hosts: str, subdomain: str, settings: Settings) -> str:
    """Return all of the configuration but `default_port` and `default_bind`, which its last table lacks.

    Resources are not compared with what the machine has: they are made from the job's own numbers, and
    several pods of a job may be on one machine. Nodes are addressed as all pods of a JobSet are, through the
    resolver's search list, so that any cluster domain will do.
    """
    tables: dict[str, dict[str, object]] = {
        "access": {"allow-guest-user": True, "allow-root-owner": True},
        "resource": {"path": f"{CONFIG_ROOT}/etc/flux/system/R", "noverify": True},
        "archive": {
            "dbpath": f"{CONFIG_ROOT}/var/lib/flux/job-archive.sqlite",
            "period": "1m",
            "busytimeout": "50s",
        },
        "sched-fluxion-qmanager": {"queue-policy": settings.queue_policy},
        "bootstrap": {
            "curve_cert": f"{CONFIG_ROOT}/etc/curve/curve.cert",
            "default_connect": f"tcp://%h.{subdomain}:%p",
        },
    }
    blocks = [
        "\n".join([f"[{table}]", *(f"{key} = {format_value(value)}" for key, value in entries.items())])
        for table, entries in tables.items()
    ]
    return "\n\n".join(blocks) + f"\nhosts = [{{ host = {format_value(hosts)} }}]"


def build_default_bind(settings: Settings) -> str:
    """Return where brokers listen, as a value of TOML; Flux puts the port for `%p`."""
    return format_value(f"tcp://{settings.network_device}:%p")


def format_value(value: object) -> str:
    """Return a string or boolean as TOML writes it: as JSON does, but that TOML has no bare DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
