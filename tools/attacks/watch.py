"""What well-behaved clients see during an attack: a process of its own, so that a busy attacker does
not falsify its clock."""
import multiprocessing
import socket
import threading
import time

from . import wire
from .server import die_with_parent

HEALTH_EVERY_S = 0.02
COMPLETION_EVERY_S = 1.0
MEMORY_EVERY_S = 0.02
GIVE_UP_S = 20.0  # a sample that took longer counts as that


def sample(port, method, target, body=None):
    """Seconds that a request took, and what was wrong with the answer."""
    began = time.monotonic()
    try:
        reply = wire.ask(port, method, target, body, timeout=GIVE_UP_S, source=wire.WATCHER)
        problem = None if reply and reply.status == 200 else f"status {reply and reply.status}"
    except OSError as error:
        problem = type(error).__name__
    return time.monotonic() - began, problem


def echo(listener):
    """Answers as /health does, and does nothing else: what the machine itself makes clients wait."""
    die_with_parent()
    while True:
        sock, _ = listener.accept()
        with sock:
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def watch(port, control_port, pipe):
    """Samples until the pipe says so, then sends what it saw."""
    die_with_parent()
    over = threading.Event()
    seen = {"health": [], "control": [], "completion": []}
    first = {name: threading.Event() for name in seen}

    def repeat(name, to, every, *request):
        while True:
            began = time.monotonic()
            seen[name].append(sample(to, *request))
            first[name].set()
            if over.wait(max(0.0, every - (time.monotonic() - began))):
                return

    threads = [
        threading.Thread(target=repeat, args=("health", port, HEALTH_EVERY_S, "GET", "/health")),
        threading.Thread(target=repeat, args=("control", control_port, HEALTH_EVERY_S, "GET", "/health")),
        threading.Thread(target=repeat, args=("completion", port, COMPLETION_EVERY_S, "POST",
                                              "/v1/completions", wire.completion())),
    ]
    for thread in threads:
        thread.start()
    for event in first.values():
        event.wait()
    pipe.send("watching")
    pipe.recv()
    over.set()
    for thread in threads:
        thread.join()
    pipe.send(seen)


class Samples:
    def __init__(self, values):
        self.values = sorted(seconds for seconds, _ in values)
        self.problems = sorted({problem for _, problem in values if problem})
        self.failed = sum(1 for _, problem in values if problem)

    def __len__(self):
        return len(self.values)

    def percentile(self, share):
        return self.values[min(len(self.values) - 1, int(share * len(self.values)))]

    worst = property(lambda self: self.values[-1])


class Watcher:
    """Watches while its `with` lasts: from the first answers of a quiet server to the last ones of
    the attacked one. Then .health, .completion and .control, of a server that only echoes, are
    Samples."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            ports = self.server.port, listener.getsockname()[1]
            self.processes = [context.Process(target=echo, args=(listener,), daemon=True),
                              context.Process(target=watch, args=(*ports, theirs), daemon=True)]
            for process in self.processes:
                process.start()
        theirs.close()
        self.pipe.recv()
        self.server.reset_peak()
        self.cpu_before = self.server.cpu_s()
        return self

    def __exit__(self, *_):
        self.cpu_s = self.server.cpu_s() - self.cpu_before
        self.peak_rss = self.server.peak_rss()
        try:
            self.pipe.send("over")
            seen = self.pipe.recv()
            self.health, self.control, self.completion = (
                Samples(seen[name]) for name in ("health", "control", "completion"))
        finally:
            for process in self.processes:
                process.kill()
                process.join()
