"""Malformed, ambiguous and forbidden requests; keys; damaged JSON."""
import json
import random
import time

from . import wire
from .trial import attack

COMPLETION = json.dumps(wire.completion(tokens=1)).encode()
KEY_LINE = f"Authorization: Bearer {wire.KEY}\r\n".encode()


def post(*lines, body=COMPLETION, version=b"1.1", host=b"Host: localhost\r\n"):
    """A completion whose framing is said by `lines`."""
    return (b"POST /v1/completions HTTP/" + version + b"\r\n" + host + KEY_LINE +
            b"Content-Type: application/json\r\n" + b"".join(line + b"\r\n" for line in lines) +
            b"\r\n" + body)


def raw_requests():
    """(what, bytes, statuses that are right). One reply at most: a second one would mean that a
    proxy and the server may disagree where the request ends."""
    n = str(len(COMPLETION)).encode()
    length, chunked = b"Content-Length: " + n, b"Transfer-Encoding: chunked"
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(COMPLETION), COMPLETION)
    smuggled = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    bad, refused = {400}, {400, 431, 501}
    for what, lines, body in (
        ("CL+TE", (length, chunked), chunks), ("TE+CL", (chunked, length), chunks),
        ("CL+TE smuggled", (b"Content-Length: 6", chunked), smuggled),
        ("TE+CL smuggled", (chunked, b"Content-Length: 4"), smuggled),
        ("two equal lengths and more", (length, length, b"Content-Length: 5"), COMPLETION),
        ("two lengths", (length, b"Content-Length: 3"), COMPLETION),
        ("length with +", (b"Content-Length: +" + n,), COMPLETION),
        ("length with -", (b"Content-Length: -1",), COMPLETION),
        ("hexadecimal length", (b"Content-Length: 0x10",), COMPLETION),
        ("length with a blank", (b"Content-Length: 1 2",), COMPLETION),
        ("length in a list", (b"Content-Length: 5, 6",), COMPLETION),
        ("empty length", (b"Content-Length:",), COMPLETION),
        ("blank before the colon", (b"Content-Length : " + n,), COMPLETION),
        ("TE xchunked", (b"Transfer-Encoding: xchunked",), chunks),
        ("TE with a control character", (b"Transfer-Encoding: \x0bchunked",), chunks),
        ("NUL in a header", (length, b"X-A: a\x00b"), COMPLETION),
        ("NUL in a name", (length, b"X\x00A: a"), COMPLETION),
        ("bare CR in a header", (length, b"X-A: a\rTransfer-Encoding: chunked"), COMPLETION),
        ("chunk size with a sign", (chunked,), b"+5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with 0x", (chunked,), b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size above 64 bits", (chunked,), b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("chunk longer than its size", (chunked,), b"2\r\nhello\r\n0\r\n\r\n"),
    ):
        yield what, post(*lines, body=body), refused
    for bits in (63, 64):
        yield f"length 2^{bits}", post(b"Content-Length: %d" % 2**bits), refused | {413}
    # RFC 9112, 5.2: refused, or read as if it stood on one line.
    yield "folded TE", post(b"Transfer-Encoding:\r\n chunked", body=chunks), {200, 400, 501}
    yield "TE gzip, chunked", post(b"Transfer-Encoding: gzip, chunked", body=chunks), {501}
    yield "TE gzip", post(b"Transfer-Encoding: gzip", body=chunks), {400, 501}
    yield "chunked in HTTP/1.0", post(chunked, body=chunks, version=b"1.0"), bad
    yield "bare LF", post(length).replace(b"\r\n", b"\n"), bad
    yield "two hosts", post(length, b"Host: evil.example"), bad
    yield "no host", post(length, host=b""), bad
    yield "HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}
    yield "HTTP/3.0", post(length, version=b"3.0"), {400, 505}
    yield "TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32, bad
    yield "a line of 64 KiB", b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n\r\n", {400, 414, 431}
    yield "a path of 300 bytes", wire.head("GET", "/" + "a" * 300), {414}
    many = [f"X-{i}: {'a' * 60}" for i in range(2000)]
    yield "2,000 headers", wire.head("GET", "/health", more=many), {431}
    yield "headers' names alone", b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 20000 + b"\r\n", {400, 431}
    yield "unknown expectation", post(length, b"Expect: a-cake"), {417}
    yield "a body of 9 MiB announced", post(b"Content-Length: %d" % (9 << 20), body=b""), {413}
    for host in ("LOCALHOST", "localhost.", "LocalHost.:80", "127.0.0.1", "[::1]"):
        yield f"Host {host}", wire.head("GET", "/health", host=host), {200}
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3.4",
                 "localhost@evil.example", "0x7f.1", "127.1.evil"):
        yield f"Host {host}", wire.head("GET", "/health", host=host), {421, 400}
    for target in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd",
                   "/v1/models/..%2f..%2fetc%2fpasswd", "//etc/passwd", "/%00"):
        yield f"path {target}", wire.head("GET", target), {400, 404}
    for name in ("/etc/passwd", "../../etc/passwd", "%2fproc%2fself%2fenviron"):
        for target in (f"/api/models?name={name}", f"/api/predict?model={name}",
                       f"/api/predict?machine={name}", f"/api/predict?stack={name}"):
            yield f"file in {target}", wire.head("GET", target), {400}
    nul = COMPLETION + b"\x00{}"
    yield "NUL after the JSON", post(b"Content-Length: %d" % len(nul), body=nul), bad
    junk = COMPLETION + b"x"
    yield "text after the JSON", post(b"Content-Length: %d" % len(junk), body=junk), bad
    api = wire.head("POST", "/api/predict", 2, kind="text/plain") + b"{}"
    yield "a foreign form to /api", api, {415}
    site = wire.head("GET", "/api/machines", more=["Sec-Fetch-Site: cross-site"])
    yield "a foreign page to /api", site, {403}


@attack("raw-http")
def raw_http(trial):
    """Every malformed, ambiguous or forbidden request gets one reply, with the status of RFC 9112,
    and none of them reads a file: two readers of one byte stream never disagree about it."""
    with trial.attacked() as server:
        right = count = 0
        for what, data, wanted in raw_requests():
            # The smuggled request would be answered within the second that ask_raw() waits; most
            # replies end with the connection.
            got = wire.ask_raw(server.port, data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
                               if data.startswith(b"GET") else data)
            found = statuses_of(got)
            count += 1
            if len(found) == 1 and found[0] in wanted and b"root:" not in got:
                right += 1
            else:
                trial.fail(f"{what}: {found or got[:60]} instead of {sorted(wanted)}")
        trial.count("refused or answered as they should be", right, count)


def statuses_of(got):
    return wire.statuses(got.replace(b"HTTP/1.0 ", b"HTTP/1.1 "))


OPEN = ("/health", "/healthz", "/version", "/metrics", "/api/serving", "/api/machines")
KEYED = (("GET", "/v1/models", None), ("GET", "/models", None),
         ("POST", "/v1/completions", wire.completion(tokens=1)),
         ("POST", "/completions", wire.completion(tokens=1)),
         ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
         ("POST", "/tokenize", {"prompt": "a"}), ("POST", "/detokenize", {"tokens": [1]}))


@attack("keys")
def keys(trial):
    """Every keyed path asks for the key and answers with it; what is open stays open. On an address
    beyond loopback the page's API asks for it too, and no server starts there without a key."""
    wrong = [None, "", "x", wire.KEY[:-1], wire.KEY[1:], wire.KEY + "x", wire.KEY.upper(),
             "x" * 10000, wire.KEY + "\t x", "ü"]
    with trial.attacked() as server:
        refused = answered = 0
        for method, target, body in KEYED:
            answered += server.ask(method, target, body).status == 200
            for key in wrong:
                more = () if key is None else (f"X-Api-Key: {key}",)
                with wire.connect(server.port) as sock:
                    wire.send_all(sock, wire.request(method, target, body, key=key or None,
                                                     more=(*more, "Connection: close")))
                    reply = wire.read_reply(sock)
                refused += reply is not None and reply.status == 401
        trial.count("wrong keys refused", refused, len(KEYED) * len(wrong))
        trial.count("right key answered", answered, len(KEYED))
        trial.count("open paths", sum(server.ask("GET", path, key=None).status == 200 for path in OPEN),
                    len(OPEN))
    exposed(trial)


def exposed(trial):
    """A server that others reach: 127.0.0.1 with --allowed-hosts stands for it, since this tool
    listens on loopback only."""
    if "--allowed-hosts" not in trial.options.flags:
        return trial.fail("no --allowed-hosts: /api beyond loopback asks for no key")
    with trial.server("--allowed-hosts", "ridge.example") as server:
        host = {"host": "ridge.example"}
        for path in ("/api/machines", "/api/live", "/api/sweep?batch=1..4", "/api/lab"):
            trial.count(f"{path} without a key", server.ask("GET", path, key=None, **host).status, 401)
        login = {"key": wire.KEY}
        trial.count("wrong login", server.ask("POST", "/api/login", {"key": "x"}, key=None, **host).status, 401)
        reply = server.ask("POST", "/api/login", login, key=None, **host)
        trial.count("login", reply.status, 204)
        cookie = reply.headers.get("set-cookie", "")
        trial.require("the cookie is HttpOnly and SameSite=Strict",
                      "HttpOnly" in cookie and "SameSite=Strict" in cookie)
        more = (f"Cookie: {cookie.split(';')[0]}", "Connection: close")
        with wire.connect(server.port) as sock:
            wire.send_all(sock, wire.head("GET", "/api/machines", key=None, more=more, **host))
            trial.count("/api with the cookie", wire.read_reply(sock).status, 200)
        trial.count("foreign host", server.ask("GET", "/health", host="evil.example").status, 421)
    try:
        # This one may never listen: it must end with one line. It has no key and names a host.
        with trial.server("--allowed-hosts", "ridge.example", "--no-model", key=None):
            trial.fail("a server that others reach started without --api-key and --no-auth")
    except RuntimeError as error:
        trial.require("no start without a key", "--no-auth" in str(error))


def mutate(random_, body):
    """One to eight changes of a body: bytes flipped, cut, doubled, or replaced by what parsers dislike."""
    data = bytearray(body)
    disliked = [b"\x00", b"\xff", b"\xed\xa0\x80", b"\\u0000", b"\\ud800", b"1e999", b"-", b"[" * 100,
                b"{" * 100, b'"', b"\\", b"null", b"NaN", b"9" * 400, b"1e-999", b",", b"\xef\xbb\xbf"]
    for _ in range(random_.randint(1, 8)):
        at = random_.randrange(len(data) + 1)
        what = random_.randrange(5)
        if what == 0 and at < len(data):
            data[at] ^= 1 << random_.randrange(8)
        elif what == 1:
            del data[at:at + random_.randint(1, 16)]
        elif what == 2:
            data[at:at] = data[at:at + random_.randint(1, 64)]
        else:
            data[at:at] = random_.choice(disliked)
    return bytes(data)


def send_mutated(port, seed, count, limit_s):
    """The statuses, and the longest answer, of seeded bodies that were mutated. The mutated text may
    still ask for many tokens, so a body's own max_tokens is small."""
    seeds = [
        ("/v1/completions", wire.completion(["a", [1, 2]], 1, n=2, logit_bias={"5": 1}, stop=["x"],
                                            logprobs=2)),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
                                               {"role": "assistant", "content": None, "tool_calls": [
                                                   {"id": "1", "type": "function", "function": {
                                                       "name": "f", "arguments": "{\"a\": 1}"}}]}],
                                  "max_tokens": 1, "tools": [{"type": "function", "function": {
                                      "name": "f", "parameters": {"type": "object"}}}]}),
        ("/v1/completions", wire.completion(tokens=1, response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": {
                "type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}, {"enum": ["x"]}]}}}}})),
        ("/tokenize", {"prompt": "a b c", "add_special_tokens": True}),
        ("/detokenize", {"tokens": [1, 2, 3]}),
        ("/api/predict", {"model": "llama-3-8b", "machine": "h200", "batch": 2}),
    ]
    random_ = random.Random(seed)
    found, longest, until = {}, 0.0, time.monotonic() + limit_s
    sock = None
    for _ in range(count):
        if time.monotonic() > until:
            break
        target, body = random_.choice(seeds)
        data = wire.request("POST", target, mutate(random_, json.dumps(body).encode()))
        began = time.monotonic()
        if sock is None:
            sock = wire.connect(port)
        fine = wire.send_all(sock, data)
        reply = wire.read_reply(sock) if fine else None
        if reply is None or reply.headers.get("connection") == "close":
            sock.close()
            sock = None
        status = reply.status if reply else "none"
        if reply is None and fine and len(data) > 0:
            # A connection may end after 1,000 requests, between two of them: that is no answer lost.
            again = wire.ask(port, "POST", target, data.split(b"\r\n\r\n", 1)[1])
            status = again.status if again else "none"
        longest = max(longest, time.monotonic() - began)
        found[status] = found.get(status, 0) + 1
    return found, longest


@attack("mutated-json")
def mutated_json(trial):
    """Damaged JSON is answered with 200 or with a status that blames the client: never 5xx, never
    nothing, never late."""
    count, limit = (1000, 5) if trial.short else (25000, 120)
    with trial.attacked(kv_tokens=4096) as server:
        runs = trial.attackers(send_mutated, (server.port, 1, count, limit * trial.slow),
                               (server.port, 2, count, limit * trial.slow))
        total, longest = {}, 0.0
        for found, late in runs.results(limit * trial.slow + 60):
            longest = max(longest, late)
            for status, times in found.items():
                total[status] = total.get(status, 0) + times
        trial.figures["statuses"] = {str(k): v for k, v in total.items()}
        good = sum(times for status, times in total.items() if status in (200, 400, 413))
        trial.count("answered with 200, 400 or 413", good, sum(total.values()))
        trial.time("longest", longest, 5.0)
