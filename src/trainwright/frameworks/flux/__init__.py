"""Flux: a resource manager beside the user's program, which starts it on all nodes (spec 02 section 9).

An init container brings Flux in, from a "view" that fits the system of the user's image. Every pod runs a
broker; the first one's runs the command.

    framework   what the pods get
    numbers     hosts, tasks and resources, as Flux writes them
    settings    what a runtime or a job may choose by variables
    scripts     the two programs of the pods, and what they are told
    broker      the configuration of the brokers
    checks      what keeps a job from running, and what its user should know
"""

from trainwright.frameworks.flux.framework import Flux

__all__ = ["Flux"]
