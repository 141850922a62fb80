"""Addresses: no password is shown, and a server that does not answer is known soon."""

import socket
import time

import pytest

from arelu_meta.store import address
from arelu_meta.store.address import check_reachable, without_password


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg2://me:se:c/ret@host:5432/mlflow", "postgresql+psycopg2://me:***@host:5432/mlflow"),
        ("http://me:x@a and https://you:y@b:1/p", "http://me:***@a and https://you:***@b:1/p"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
    ],
)
def test_passwords_are_not_shown(text: str, shown: str):
    assert without_password(text) == shown


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "getproxies", dict)


@pytest.mark.usefixtures("no_proxy")
def test_a_server_that_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"http://127.0.0.1:{server.getsockname()[1]}/path")


@pytest.mark.usefixtures("no_proxy")
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(address, "RETRY_SECONDS", 0.0)
    with pytest.raises(ConnectionError, match=f"no server answers at 127.0.0.1:{port} "):
        check_reachable(f"http://127.0.0.1:{port}")


@pytest.mark.usefixtures("no_proxy")
def test_a_server_that_is_being_restarted_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    tries = iter([ConnectionRefusedError(111, "refused"), ConnectionRefusedError(111, "refused"), None])

    class Line:
        def close(self) -> None: ...

    def connect(*_: object, **__: object) -> Line:
        error = next(tries)
        if error:
            raise error
        return Line()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    check_reachable("http://127.0.0.1:5000")
    assert next(tries, "none left") == "none left"


def test_files_databases_and_what_is_behind_a_proxy_are_not_knocked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("knocked"))
    monkeypatch.setattr(address, "getproxies", lambda: {"https": "http://proxy:3128"})
    for uri in ("sqlite:///mlflow.db", "postgresql://a@b/c", "https://far.away:5000"):
        check_reachable(uri)
