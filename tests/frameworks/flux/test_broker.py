"""The configuration of the brokers, read back as TOML."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given

from frameworks.flux.strategies import texts
from trainwright.frameworks.flux.broker import build_broker_config, build_default_bind
from trainwright.frameworks.flux.settings import Settings

ROOT = "/mnt/flux/config"


def settings(**chosen: str) -> Settings:
    return Settings(**{"view_image": "view:1", "network_device": "eth0", "queue_policy": "fcfs", **chosen})


def test_the_whole_configuration() -> None:
    text = build_broker_config("demo-node-0-[0-1]", "demo", settings(queue_policy="easy"))
    assert tomllib.loads(f"{text}\ndefault_bind = {build_default_bind(settings())}") == {
        "access": {"allow-guest-user": True, "allow-root-owner": True},
        "resource": {"path": f"{ROOT}/etc/flux/system/R", "noverify": True},
        "archive": {
            "dbpath": f"{ROOT}/var/lib/flux/job-archive.sqlite",
            "period": "1m",
            "busytimeout": "50s",
        },
        "sched-fluxion-qmanager": {"queue-policy": "easy"},
        "bootstrap": {
            "curve_cert": f"{ROOT}/etc/curve/curve.cert",
            "default_bind": "tcp://eth0:%p",
            "default_connect": "tcp://%h.demo:%p",
            "hosts": [{"host": "demo-node-0-[0-1]"}],
        },
    }


@pytest.mark.parametrize("subdomain", ["demo", "trainers"])
def test_nodes_are_addressed_in_the_subdomain_of_the_job(subdomain: str) -> None:
    text = build_broker_config("h-[0]", subdomain, settings())
    assert tomllib.loads(text)["bootstrap"]["default_connect"] == f"tcp://%h.{subdomain}:%p"


@given(texts)
def test_whatever_a_setting_is_it_stays_one_value(text: str) -> None:
    read = tomllib.loads(build_broker_config("h-[0]", "demo", settings(queue_policy=text)))
    assert read["sched-fluxion-qmanager"] == {"queue-policy": text}
    assert read["bootstrap"]["hosts"] == [{"host": "h-[0]"}]
