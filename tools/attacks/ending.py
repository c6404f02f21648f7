"""SIGTERM and SIGKILL, whatever hangs."""
import contextlib
import os
import signal
import time

from . import kinds, wire
from .exhaustion import encoded
from .load import bodies
from .sockets import answers, crowd
from .trial import MIB, TERM_S, attack


def bomb():
    return next(encoded(*request) for name, *request in kinds.schemas())


def stream(tokens=900):
    return wire.request("POST", "/v1/completions", wire.completion(tokens=tokens, stream=True))


def hanging():
    """(what hangs, connections, what each sends)."""
    sweep = "/api/sweep?model=llama-3-8b&machine=h200&batch=1..20000"
    plan = "/api/plan?model=llama-3-8b&rate=100&count=100000&max-machines=64&ttft=500ms"
    yield "schemas", 8, bomb()
    yield "sweeps", 16, wire.head("GET", sweep)
    yield "plans", 16, wire.head("GET", plan)
    yield "unread streams", 64, stream()
    yield "live events", 16, wire.head("GET", "/api/live?profile=1")
    yield "half headers", 256, b"GET / HTTP/1.1\r\nHost: loc"
    yield "half bodies", 64, wire.head("POST", "/v1/completions", MIB) + b'{"prompt":"'
    upload = wire.head("POST", "/api/explain/files", 64 * MIB, kind="application/x-ridge-files")
    yield "half uploads", 4, upload + b"{"
    yield "idle", 256, b""
    yield "unread replies", 32, wire.head("GET", "/api/models") * 50
    tree = b'{"prompt":"a","x":[' + b"{}," * 2700000 + b"{}]}"
    yield "large bodies", 8, wire.request("POST", "/v1/completions", tree)


def begun(server, before, trial):
    """The work of the connections has begun: the server has spent CPU on it, or it needs none."""
    wire.wait_until(lambda: server.cpu_s() - before > 0.1, 1.0 * trial.slow)


@attack("sigterm")
def sigterm(trial):
    """SIGTERM ends the server within its drain and a second, whatever hangs: every kind of work
    apart, in the short form all of them at once. A second SIGTERM ends it at once."""
    works = [(what, [(count, data)]) for what, count, data in hanging()]
    if trial.short:
        works = [("all at once", [work for _, parts in works for work in parts])]
    for what, parts in works:
        for drain in (0, 1):
            with trial.server("--drain", str(drain)) as server:
                before = server.cpu_s()
                members = trial.attackers(send_each, *((server.port, *part) for part in parts))
                begun(server, before, trial)
                trial.end(server, drain, f"{what}, drain {drain}")
                members.end()
    with trial.server("--drain", "30") as server:
        with wire.connect(server.port) as sock:
            wire.send_all(sock, stream())
            sock.recv(1)
            server.process.send_signal(signal.SIGTERM)
            wire.wait_until(lambda: not answers(server.port), 10 * trial.slow)
            took, _ = server.end(TERM_S * trial.slow + 5)
            trial.check("second SIGTERM", took, TERM_S * trial.slow, "s")


def send_each(port, count, data):
    """Sends `data` on so many connections and keeps them until this process is ended."""
    sockets = []
    for _ in range(count):
        try:
            sock = wire.connect(port, timeout=2.0)
            sock.sendall(data)
        except OSError:
            pass
        sockets.append(sock)
    time.sleep(3600)


@attack("drain")
def drain(trial):
    """After SIGTERM the answers that run are whole, new requests are refused, and the end comes
    before the limit of the drain."""
    count, limit = 32, 20
    with trial.server("--drain", str(limit)) as server, contextlib.ExitStack() as stack:
        data = [wire.request("POST", "/v1/completions", body) for body in bodies()]
        sockets = [stack.enter_context(wire.connect(server.port, timeout=60 * trial.slow)) for _ in range(count)]
        for i, sock in enumerate(sockets):
            sock.sendall(data[i % len(data)])
        for sock in sockets:
            sock.recv(9)  # "HTTP/1.1 ": it runs
        server.process.send_signal(signal.SIGTERM)
        refused = wire.wait_until(lambda: not answers(server.port), 10 * trial.slow)
        trial.require("new requests refused", refused)
        whole = 0
        for sock in sockets:
            rest = b""
            with contextlib.suppress(OSError):
                while part := sock.recv(65536):
                    rest += part
            whole += b"data: [DONE]" in rest
        trial.count("whole answers", whole, count)
        try:
            server.process.wait(limit * trial.slow)
            trial.count("exit status", server.process.returncode, 0)
        except Exception:
            trial.fail("still there after its answers")


@attack("sigkill")
def sigkill(trial):
    """Killed under load it starts again on the same port, and answers as before."""
    with trial.server() as server:
        port = server.port
        before = server.ask("POST", "/v1/completions", wire.completion(tokens=32)).json()["choices"][0]["text"]
        with crowd(port, 64, stream()):
            os.kill(server.pid, signal.SIGKILL)
            server.process.wait()
        began = time.monotonic()
        with trial.server(port=port) as again:
            trial.time("ready again", time.monotonic() - began, 10.0)
            after = again.ask("POST", "/v1/completions", wire.completion(tokens=32)).json()["choices"][0]["text"]
            trial.require("the same answer", after == before)
