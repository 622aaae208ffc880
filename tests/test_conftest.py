"""The guard that keeps the tests off the network."""

from __future__ import annotations

import socket

import pytest
from pytest_socket import SocketConnectBlockedError


@pytest.mark.filterwarnings("ignore:A test tried to use")
def test_a_connection_beyond_loopback_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as away, pytest.raises(SocketConnectBlockedError):
        away.connect(("192.0.2.1", 9))


def test_loopback_and_unix_sockets_work() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x")
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(1) == b"x"
    left, right = socket.socketpair()
    left.close()
    right.close()
