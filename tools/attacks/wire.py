"""HTTP as bytes on a socket: what a hostile client sends, and what comes back."""
import http.client
import json
import socket
import time

KEY = "the-key-of-this-attack"
# Attackers and watchers have different addresses, so that a limit for each address is told apart
# from a limit for all.
WATCHER, ATTACKER = "127.0.0.1", "127.0.0.2"


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def connect(port, source=ATTACKER, timeout=30.0):
    sock = socket.create_connection(("127.0.0.1", port), timeout, (source, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def head(method, target, length=None, key=KEY, kind="application/json", host="localhost", more=()):
    """A request's head. `more` are further lines of it."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if length is not None:
        lines += [f"Content-Type: {kind}", f"Content-Length: {length}"]
    return ("\r\n".join([*lines, *more]) + "\r\n\r\n").encode("latin-1")


def request(method, target, body=None, **options):
    """A whole request. A body that is not bytes is sent as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return head(method, target, None if body is None else len(body), **options) + (body or b"")


def read_reply(sock, method="GET"):
    """The whole reply, or None where the connection ended before it did."""
    reply = http.client.HTTPResponse(sock, method=method)
    try:
        reply.begin()
        return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    except (http.client.HTTPException, ConnectionError, ValueError):
        return None
    finally:
        reply.close()


def send_all(sock, data):
    """False where the server closed before it had taken everything. It may have replied first."""
    try:
        sock.sendall(data)
        return True
    except (BrokenPipeError, ConnectionResetError):
        return False


def ask(port, method, target, body=None, timeout=30.0, source=ATTACKER, **options):
    """One request on a connection of its own. None where no whole reply came."""
    with connect(port, source, timeout) as sock:
        send_all(sock, request(method, target, body, more=("Connection: close",), **options))
        return read_reply(sock, method)


def ask_raw(port, data, timeout=10.0):
    """Everything that the server sends for these bytes until it closes or is silent for a second
    after its first bytes: more than one reply shows."""
    with connect(port, timeout=timeout) as sock:
        send_all(sock, data)
        got = b""
        try:
            while len(got) < 1 << 20:
                part = sock.recv(65536)
                if not part:
                    break
                got += part
                sock.settimeout(1.0)
        except (TimeoutError, ConnectionResetError):
            pass
        return got


def statuses(got):
    """The status of each reply in the bytes."""
    return [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]


def wait_until(true, seconds, step=0.02):
    """Waits for an event that only looking shows. Whether it came."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(step)
    return True


def completion(prompt="Once upon a time", tokens=4, **more):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
