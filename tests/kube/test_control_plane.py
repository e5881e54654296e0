"""What the control plane of the tests promises to whoever starts one."""

from __future__ import annotations

import socket

import pytest

from kube.control_plane import find_free_ports

LOOPBACK = "127.0.0.1"


def test_a_port_is_kept_for_the_server_that_it_was_found_for() -> None:
    """Many control planes start side by side, and find their ports long before they listen."""
    [port] = find_free_ports(1)
    for address in (LOOPBACK, "0.0.0.0"):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((address, port))
    for _ in range(2):  # it may be started again
        with (
            socket.create_server((LOOPBACK, port)) as server,
            socket.create_connection((LOOPBACK, port)) as client,
        ):
            server.accept()[0].close()
            assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
