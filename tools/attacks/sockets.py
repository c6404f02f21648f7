"""Many connections that do little, and bodies that are held: memory and descriptors."""
import contextlib
import resource
import selectors
import socket
import time

from . import wire
from .trial import CROWD_BYTES, MIB, attack

CROWD = 2048


@contextlib.contextmanager
def crowd(port, count, data=b"", source=wire.ATTACKER):
    """Connections that have sent `data`. The server may have closed some of them."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            try:
                sock = stack.enter_context(wire.connect(port, source))
            except OSError:
                break
            wire.send_all(sock, data)
            sock.setblocking(False)
            sockets.append(sock)
        yield sockets


def drive(port, count, data, dribble, seconds, shrink):
    """Keeps `count` hostile connections open for `seconds`, each sending one byte of `dribble` a
    second; connections that the server ends are made again. Returns how many were open at once,
    how many replies came by status, and how many connections were made."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    replies, made, most = {}, 0, 0
    selector = selectors.DefaultSelector()
    sockets = {}

    def open_one():
        nonlocal made
        sock = socket.socket()
        if shrink:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.bind((wire.ATTACKER, 0))
        sock.settimeout(10)
        try:
            sock.connect(("127.0.0.1", port))
            sock.sendall(data)
        except OSError:
            sock.close()
            return
        sock.setblocking(False)
        made += 1
        sockets[sock] = 0
        if not shrink:  # else nobody reads
            selector.register(sock, selectors.EVENT_READ)

    def drop(sock):
        if not shrink:
            selector.unregister(sock)
        del sockets[sock]
        sock.close()

    until = time.monotonic() + seconds
    next_byte = time.monotonic() + 1
    while time.monotonic() < until:
        for _ in range(min(64, count - len(sockets))):
            open_one()
        most = max(most, len(sockets))
        for key, _ in selector.select(0.02):
            sock = key.fileobj
            try:
                got = sock.recv(4096)
            except BlockingIOError:
                continue
            except OSError:
                got = b""
            for status in wire.statuses(got):
                replies[status] = replies.get(status, 0) + 1
            if not got:
                drop(sock)
        if dribble and time.monotonic() >= next_byte:
            next_byte += 1
            for sock in list(sockets):
                at = sockets[sock]
                try:
                    sock.send(dribble[at % len(dribble):at % len(dribble) + 1])
                    sockets[sock] = at + 1
                except BlockingIOError:
                    pass
                except OSError:
                    drop(sock)
    for sock in list(sockets):
        drop(sock)
    return most, {str(k): v for k, v in replies.items()}, made


def hold_crowd(trial, data, dribble=b"", shrink=False, seconds=(3, 40)):
    seconds = seconds[0] if trial.short else seconds[1]
    with trial.attacked() as server:
        members = trial.attackers(drive, (server.port, CROWD, data, dribble, seconds, shrink))
        most, replies, made = members.results(seconds + 60 * trial.slow)[0]
        trial.figures.update(open_at_once=most, replies=replies, made=made)
        trial.note("open at once", most)
        trial.memory("RSS", server.peak_rss(), CROWD_BYTES)


@attack("dribbling-headers")
def dribbling_headers(trial):
    """2,048 connections of one address that send a byte of a header a second, and come again when
    they are closed: others are answered meanwhile."""
    hold_crowd(trial, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"a")


@attack("dribbling-bodies")
def dribbling_bodies(trial):
    """The same with a body of 1 MiB that comes a byte a second, with the key."""
    hold_crowd(trial, wire.head("POST", "/v1/completions", MIB) + b'{"prompt":"', b"a")


@attack("idle")
def idle(trial):
    """2,048 connections that send nothing."""
    hold_crowd(trial, b"", seconds=(2, 12))


@attack("unread-streams")
def unread_streams(trial):
    """2,048 clients that ask for a stream and never read it. Their requests run and wait like any
    others, so a completion waits its turn; health does not, and the unsent bytes are bounded."""
    body = wire.completion(tokens=900, stream=True)
    seconds = 3 if trial.short else 40
    with trial.attacked(completion_bar=False) as server:
        data = wire.request("POST", "/v1/completions", body)
        members = trial.attackers(drive, (server.port, CROWD, data, b"", seconds, True))
        most, replies, made = members.results(seconds + 60 * trial.slow)[0]
        trial.figures.update(open_at_once=most, replies=replies, made=made)
        trial.note("open at once", most)
        trial.memory("RSS", server.peak_rss(), CROWD_BYTES)


def ask_half_closed(port, count):
    """The statuses of requests whose clients close their sending side and then wait."""
    found = []
    data = wire.request("POST", "/v1/completions", wire.completion(tokens=16),
                        more=("Connection: close",))
    for _ in range(count):
        with wire.connect(port) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            reply = wire.read_reply(sock)
            found.append(reply.status if reply else "none")
    return found


@attack("half-closed")
def half_closed(trial):
    """A client that closes its sending side after the request gets its answer, with 200."""
    count = 10 if trial.short else 200
    with trial.attacked() as server:
        found = trial.attackers(ask_half_closed, (server.port, count)).results(120 * trial.slow)[0]
        trial.count("answered with 200", found.count(200), count)


def hold_bodies(port, count, size, target, key, kind, seconds):
    """Sends bodies but for their last byte, all at once, until none takes a byte for a second or the
    time is over. Returns (statuses, bytes sent, replies with Retry-After). It holds what is left
    until the server has answered all or the time is over."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    selector = selectors.DefaultSelector()
    block = b" " * 65536
    left, got = {}, {}
    for _ in range(count):
        sock = wire.connect(port)
        sock.sendall(wire.head("POST", target, size, key=key, kind=kind))
        sock.setblocking(False)
        left[sock], got[sock] = size - 1, b""
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
    sent, until = 0, time.monotonic() + seconds
    last_change = time.monotonic()
    while selector.get_map() and time.monotonic() < until and time.monotonic() < last_change + 2:
        for key_, events in selector.select(0.2):
            sock = key_.fileobj
            try:
                if events & selectors.EVENT_READ:
                    part = sock.recv(65536)
                    got[sock] += part
                    last_change = time.monotonic()
                    if not part:
                        selector.unregister(sock)
                        continue
                if events & selectors.EVENT_WRITE:
                    done = sock.send(block[:left[sock]])
                    left[sock] -= done
                    sent += done
                    last_change = time.monotonic()
                    if left[sock] == 0:
                        selector.modify(sock, selectors.EVENT_READ)
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(sock)
    found, retry = {}, 0
    for sock, data in got.items():
        status = (wire.statuses(data) or ["held" if left[sock] == 0 else "cut"])[0]
        found[str(status)] = found.get(str(status), 0) + 1
        retry += b"retry-after" in data.lower()
        sock.close()
    return found, sent, retry


@attack("held-bodies")
def held_bodies(trial):
    """300 bodies of 8 MiB but for the last byte. With a wrong key none is read: 401. With the right
    one the server holds what its budget allows and tells the others to come again: 503."""
    count, size, seconds = 300, 8 * MIB, 25 * trial.slow
    with trial.attacked() as server:
        for key, wanted in (("a-wrong-key", "401"), (wire.KEY, "503")):
            server.reset_peak()
            members = trial.attackers(hold_bodies, (server.port, count, size, "/v1/completions", key,
                                                    "application/json", seconds))
            found, sent, retry = members.results(seconds + 30 * trial.slow)[0]
            trial.figures[f"statuses, {wanted} wanted"] = found
            trial.memory(f"RSS, {wanted}", server.peak_rss(), CROWD_BYTES)
            if wanted == "401":
                trial.count("401", found.get("401", 0), count)
                trial.note("sent", sent, "B")  # what the kernel's buffers and a lingering close took
            else:
                trial.count("held or 503", found.get("held", 0) + found.get("503", 0), count)
                trial.check("503 for some", found.get("503", 0), count, ok=found.get("503", 0) > 0)
                trial.count("Retry-After", retry, found.get("503", 0))


@attack("uploads")
def uploads(trial):
    """Ten uploads of 256 MiB to /api/explain/files, held before their last byte: one is taken, the
    others are told to come again."""
    count, size, seconds = 10, 256 * MIB, 25 * trial.slow
    kind = "application/x-ridge-files"
    with trial.attacked() as server:
        members = trial.attackers(hold_bodies, (server.port, count, size, "/api/explain/files", None,
                                                kind, seconds))
        found, _, retry = members.results(seconds + 30 * trial.slow)[0]
        trial.figures["statuses"] = found
        trial.memory("RSS", server.peak_rss(), CROWD_BYTES)
        refused = found.get("503", 0)
        trial.check("refused with 503", refused, count, ok=refused >= count - 1)
        trial.count("Retry-After", retry, refused)


@attack("descriptors")
def descriptors(trial):
    """With 64 descriptors and 200 connections the server does not spin, and answers again once they
    are closed."""
    with trial.server(descriptors=64) as server:
        with crowd(server.port, 200):
            before = server.cpu_s()
            time.sleep(2.0)  # the time over which CPU seconds are counted
            trial.check("CPU in 2 s", server.cpu_s() - before, 0.5 * trial.slow, "s")
        began = time.monotonic()
        answered = wire.wait_until(lambda: answers(server.port), 10 * trial.slow)
        trial.time("an answer once they are closed", time.monotonic() - began if answered else None, 2.0)
        trial.end(server, 30)


def answers(port):
    """Whether new requests are answered: during a drain they are not."""
    try:
        return wire.ask(port, "GET", "/v1/models", timeout=2.0).status == 200
    except (OSError, AttributeError):
        return False
