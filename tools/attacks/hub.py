"""`ridge pull` from a server that lies."""
import hashlib
import http.server
import json
import os
import tempfile
import threading

from . import programs
from .trial import MIB, attack

COMMIT = "a" * 39 + "1"
TOKEN = "the-token-that-no-other-host-may-see"
CONFIG = json.dumps({"model_type": "llama", "hidden_size": 64}).encode()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Lies:
    """What one hub says: the listing's files, and the reply to each path. The usual one is honest."""

    def __init__(self, siblings=None, listing=None, file=None):
        self.siblings = siblings or [self.sibling("config.json", CONFIG),
                                     self.sibling("model.safetensors", b"x" * 1000)]
        self.listing, self.file = listing, file

    @staticmethod
    def sibling(name, data, **more):
        return {"rfilename": name, "size": len(data), "blobId": git_hash(data), **more}


class Hub:
    """Two servers on loopback: the hub, and another host to which it may redirect."""

    def __init__(self, lies):
        self.lies, self.tokens_elsewhere, self.stop = lies, 0, threading.Event()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *_):
                pass

        self.servers = []
        for _ in range(2):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self.servers.append(server)
        self.url, self.other = (f"http://127.0.0.1:{s.server_address[1]}" for s in self.servers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def answer(self, request):
        elsewhere = request.server is self.servers[1]
        if elsewhere and TOKEN in str(request.headers):
            self.tokens_elsewhere += 1
        if request.path.startswith("/api/models/"):
            if self.lies.listing:
                return self.lies.listing(self, request)
            listing = {"id": "org/name", "sha": COMMIT, "siblings": self.lies.siblings}
            return reply(request, 200, json.dumps(listing).encode())
        if self.lies.file:
            return self.lies.file(self, request)
        reply(request, 200, CONFIG if request.path.endswith("config.json") else b"x" * 1000)


def reply(request, status, body=b"", **headers):
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def endless(hub, request):
    request.send_response(200)
    request.end_headers()
    while not hub.stop.is_set():
        request.wfile.write(b" " * 65536)


def dribble(hub, request):
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    while not hub.stop.wait(1.0):
        request.wfile.write(b"x")
        request.wfile.flush()


def redirect(status, target):
    return lambda hub, request: (reply(request, status, Location=target.format(hub.other))
                                 if request.server is hub.servers[0] else reply(request, 200, b"x" * 1000))


def cases():
    """(what it does, its lies)."""
    yield "a wrong hash", Lies([Lies.sibling("config.json", CONFIG[:-1] + b" "),
                                Lies.sibling("model.safetensors", b"y" * 1000)])
    yield "a longer file", Lies(file=lambda hub, r: reply(r, 200, b"x" * 2000))
    yield "a shorter file", Lies(file=lambda hub, r: reply(r, 200, b"x" * 10))
    yield "an endless file", Lies(file=endless)
    yield "an endless listing", Lies(listing=endless)
    yield "a listing of deep JSON", Lies(listing=lambda hub, r: reply(r, 200, b"[" * MIB))
    yield "a false range", Lies(file=lambda hub, r: reply(r, 206, b"x" * 1000, Content_Range="bytes 500-1499/1000"))
    for name in ("../../../escaped.json", "/tmp/escaped.json", "a/../../escaped.json", "..", "a\\..\\escaped.json",
                 "escaped\n.json", "a//escaped.json", "C:escaped/../../x.json"):
        yield f"a file named {name!r}", Lies([Lies.sibling("config.json", CONFIG), Lies.sibling(name, b"x" * 1000)])
    for commit in ("../../escaped", "a" * 39, "a" * 39 + "/", ""):
        yield f"a commit {commit!r}", Lies(listing=lambda hub, r, sha=commit: reply(r, 200, json.dumps(
            {"id": "org/name", "sha": sha, "siblings": Lies().siblings}).encode()))
    for digest in ("../../escaped", "0" * 63, "0" * 63 + "/"):
        yield f"a hash {digest[:16]!r}", Lies([Lies.sibling("config.json", CONFIG), Lies.sibling(
            "model.safetensors", b"x" * 1000, lfs={"sha256": digest, "size": 1000, "pointerSize": 134})])
    for status in (301, 302, 303, 307, 308):
        yield f"a redirect {status} to another host", Lies(file=redirect(status, "{}/elsewhere"))
    yield "a redirected listing", Lies(listing=redirect(302, "{}/api/models/org/name"))
    yield "a redirect to a file", Lies(file=redirect(302, "file:///etc/passwd"))
    yield "a redirect to gopher", Lies(file=redirect(302, "gopher://127.0.0.1:1/x"))
    yield "redirects without end", Lies(file=lambda hub, r: reply(r, 302, Location=hub.url + r.path))


def files_under(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


def pull_environment(hub, folder):
    return {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": f"{folder}/cache", "HF_HOME": f"{folder}/home",
            "HF_TOKEN": TOKEN, "no_proxy": "127.0.0.1", "HOME": folder}


@attack("hub")
def hub(trial):
    """A hub that lies about names, hashes, sizes and redirects is refused with one line: nothing
    leaves the cache, no other host gets the token, no wrong byte becomes a model, and it ends."""
    limit = 15 * trial.slow  # three retries of a broken connection wait 7 s
    chosen = list(cases())
    right = 0
    with tempfile.TemporaryDirectory() as top:
        slow_hub, slow = Hub(Lies(file=dribble)), None
        if not trial.short:
            os.makedirs(f"{top}/slow")
            slow = programs.start(trial, ["pull", "org/name"], pull_environment(slow_hub, f"{top}/slow"))
        for number, (what, lies) in enumerate(chosen):
            folder = f"{top}/{number}/inside"
            os.makedirs(folder)
            with Hub(lies) as server:
                ended = programs.call(trial, "pull", "org/name", environment=pull_environment(server, folder),
                                      limit_s=limit)
            outside = [path for path in files_under(top) if "escaped" in path] + [
                path for path in ("/tmp/escaped.json",) if os.path.exists(path)]
            models = [path for path in files_under(f"{folder}/cache") if "/snapshots/" in path
                      and path.endswith(".safetensors")]
            # A redirect that brings the right bytes is no lie, only a place where the token must not go.
            refused = ended.status == 2 and not models and ended.output.count("\n") <= 2
            honest = "to another host" in what or "redirected listing" in what
            if (refused or honest and ended.status is not None) and not outside and not server.tokens_elsewhere:
                right += 1
            else:
                trial.fail(f"{what}: status {ended.status} after {ended.seconds:.1f} s, outside {outside}, "
                           f"tokens elsewhere {server.tokens_elsewhere}, {ended.output[-200:]!r}")
        trial.count("lies refused", right, len(chosen))
        if slow:
            ended = programs.finish(slow, 300 * trial.slow)
            trial.check("a dribbling hub is given up after", ended.seconds if ended.status is not None else None,
                        300 * trial.slow, "s")
        slow_hub.__exit__()
