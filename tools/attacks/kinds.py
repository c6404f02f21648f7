"""Requests that are as expensive as their kind can be made: schemas, templates, prompts, JSON, and
the page's API. Each is (kind, method, target, body), and the body's type where it is not JSON;
bodies are bytes where JSON cannot say them. `size` is about how large a body may be."""
import contextlib
import gzip
import json
import sqlite3
import tempfile

from . import wire

WORDS = ("roofline ", "memory ", "tiles ", "of ", "the ")


def completions(body):
    return "POST", "/v1/completions", body


def chat(messages, **more):
    return "POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 1, **more}


def user(content):
    return [{"role": "user", "content": content}]


def with_schema(schema):
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return completions(wire.completion(tokens=1, response_format=form))


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


def schemas(_=None):
    def chain(levels, ways):
        """Rules that each choose among `ways` references to the next one: ways^levels paths."""
        rules = {f"r{i}": {"anyOf": [ref(f"r{i + 1}")] * ways} for i in range(levels)}
        return {"$defs": {**rules, f"r{levels}": {"type": "integer"}}, **ref("r0")}

    yield "schema: 40 levels of two references", *with_schema(chain(40, 2))
    yield "schema: 8 levels of 32 references", *with_schema(chain(8, 32))
    yield "schema: 900 levels of two references", *with_schema(chain(490, 2))
    rules = {f"r{i}": {"anyOf": [ref(f"r{(i + 1) % 30}"), ref(f"r{(i + 7) % 30}"), {"type": "null"}]}
             for i in range(30)}
    yield "schema: a ring of references", *with_schema({"$defs": rules, **ref("r0")})
    yield "schema: a rule that is itself", *with_schema({"$defs": {"a": {"anyOf": [ref("a"), ref("a")]}}, **ref("a")})
    optional = {f"k{i}": ref("o") for i in range(30)}
    recursive = {"o": {"type": "object", "properties": optional, "additionalProperties": False}}
    yield "schema: 30 optional properties, recursive", *with_schema({"$defs": recursive, **ref("o")})
    yield "schema: 900 optional properties", *with_schema(
        {"type": "object", "properties": {f"k{i}": {"type": "null"} for i in range(900)}})
    shared = "a" * 40
    yield "schema: 900 values that begin alike", *with_schema({"enum": [shared + str(i) for i in range(900)]})
    array = {"type": "integer"}
    for _ in range(12):
        array = {"type": "array", "items": array, "minItems": 900, "maxItems": 1000}
    yield "schema: 12 levels of 1,000 items", *with_schema(array)
    empty = {"const": ""}
    for _ in range(12):
        empty = {"type": "array", "prefixItems": [empty] * 2, "items": empty, "maxItems": 1000}
    yield "schema: nested prefix items", *with_schema(empty)
    yield "schema: a string of a million", *with_schema({"type": "string", "minLength": 10**6, "maxLength": 10**6})
    yield "schema: items up to 2^31", *with_schema({"type": "array", "items": {"type": "null"}, "maxItems": 2**31 - 1})
    yield "schema: wide integers", *with_schema({"anyOf": [
        {"type": "integer", "minimum": -(10**18) + i, "maximum": 10**18 - i} for i in range(32)]})
    nested = {"type": "null"}
    for _ in range(60):
        nested = {"anyOf": [nested, {"type": "object", "properties": {"a": nested}}]} if len(
            json.dumps(nested)) < 20000 else {"type": "array", "items": nested}
    yield "schema: alternatives within alternatives", *with_schema(nested)
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": chain(20, 2)}} for i in range(24)]
    yield "tools: 24 with two references at 20 levels", *chat(user("a"), tools=tools, tool_choice="required")


def templates(size):
    yield "chat: many messages", *chat([{"role": ("user", "assistant")[i % 2], "content": "a"}
                                           for i in range(size // 80)])
    yield "chat: many parts", *chat(user([{"type": "text", "text": "a"}] * (size // 80)))
    yield "chat: one long message", *chat(user("word " * (size // 5)))
    deep = {"type": "object"}
    for _ in range(50):
        deep = {"type": "object", "properties": {"a": deep}}
    yield "chat: 128 deep tools", *chat(user("a"), tools=[
        {"type": "function", "function": {"name": f"f{i}", "description": "d" * 1000, "parameters": deep}}
        for i in range(128)])
    calls = [{"id": str(i), "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": [i] * 50})}}
             for i in range(2000)]
    yield "chat: 2,000 tool calls", *chat([*user("a"), {"role": "assistant", "content": None, "tool_calls": calls},
                                           *user("b")])
    yield "chat: template arguments of 4 MiB", *chat(user("a"), chat_template_kwargs={
        f"k{i}": ["x" * 100] * 10 for i in range(4000)})
    yield "chat: a template of its own", *chat(user("a"), chat_template=(
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}"))


def prompts(size):
    texts = {
        "one letter": "a" * size, "blanks": " " * size, "newlines": "\n" * (size // 2),
        "digits": "7" * size, "words": "".join(WORDS) * (size // sum(map(len, WORDS))),
        "apostrophes": "'s 'T " * (size // 6), "punctuation": "!?.-" * (size // 4),
        "tabs and letters": "\t a" * (size // 4), "blanks and a letter": (" " * 4000 + "a") * (size // 4001),
        "angle brackets": "<|im_start|" * (size // 11), "upper and lower": "aA" * (size // 2)}
    for name, text in texts.items():
        yield f"prompt: {name}", *completions(wire.completion(text, 1))
    marks = {"combining marks": "a" + "\u0301" * (size // 2 - 100), "emoji": "\U0001F469\u200d" * (size // 7 - 100),
             "CJK": "\u8a9e" * (size // 3 - 100), "ligatures": "\ufdfa" * (size // 3 - 100)}
    for name, text in marks.items():
        body = json.dumps(wire.completion(text, 1), ensure_ascii=False).encode()
        yield f"prompt: {name}", *completions(body)
    yield "prompt: escapes", *completions(b'{"max_tokens":1,"prompt":"' + b"\\u0041" * (size // 6 - 20) + b'"}')
    yield "prompt: 256 texts", *completions(wire.completion(["word " * (size // 1400)] * 256, 1))
    yield "tokenize", "POST", "/tokenize", {"prompt": "word " * (size // 5 - 10)}
    yield "detokenize", "POST", "/detokenize", {"tokens": [5] * (size // 3 - 10)}
    stops = ["a" * 1000 + str(i) for i in range(16)]
    yield "stops that begin alike", *completions(wire.completion("a" * 400, 1, stop=stops))


def large_json(size):
    """A tree of values that is much larger than its text."""

    def filled(begin, part, end, count=None):
        parts = count or (size - len(begin) - len(end)) // (len(part) + 1)
        return begin + b",".join([part] * parts) + end

    for field in ("x", "messages", "prompt", "stop", "tools", "logit_bias", "chat_template_kwargs", "metadata"):
        target = "/v1/chat/completions" if field in ("messages", "tools", "chat_template_kwargs") else "/v1/completions"
        head = b'{"max_tokens":1,' + (b'"prompt":"a",' if field != "prompt" else b"") + b'"%s":[' % field.encode()
        yield f"JSON: {{}} under {field}", "POST", target, filled(head, b"{}", b"]}")
    yield "JSON: lists under prompt", *completions(filled(b'{"max_tokens":1,"prompt":[', b"[]", b"]}"))
    yield "JSON: ids under prompt", *completions(filled(b'{"max_tokens":1,"prompt":[', b"1", b"]}"))
    yield "JSON: texts under prompt", *completions(filled(b'{"max_tokens":1,"prompt":[', b'""', b"]}"))
    yield "JSON: numbers", *completions(filled(b'{"prompt":"a","max_tokens":1,"x":[', b"1.5e300", b"]}"))
    keys = b",".join(b'"%d":0' % i for i in range(size // 14))
    yield "JSON: many keys", *completions(b'{"prompt":"a","max_tokens":1,"x":{' + keys + b"}}")
    yield "JSON: one key often", *completions(filled(b'{"prompt":"a","max_tokens":1,"x":{', b'"a":0', b"}}"))
    levels = size // 2 - 10
    yield "JSON: as many levels as fit", *completions(
        b'{"prompt":"a","x":' + b"[" * levels + b"]" * levels + b"}")
    yield "JSON: a long number", *completions(b'{"prompt":"a","max_tokens":1,"x":' + b"9" * (size - 100) + b"}")
    yield "JSON: messages that are wrong at the end", "POST", "/v1/chat/completions", filled(
        b'{"max_tokens":1,"messages":[', b'{"role":"user","content":"a"}', b',{"role":0}]}')


def sqlite(path, kernels):
    """A trace of Nsight Systems whose table of names has no index."""
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT NOT NULL)")
        base.execute("CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT)")
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200')")
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, "
                     "streamId INT, correlationId INT, demangledName INT, shortName INT)")
        base.executemany("INSERT INTO StringIds VALUES (?, ?)",
                         ((i, f"kernel_{i}") for i in range(kernels)))
        base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, ?)",
                         ((100 * i, 100 * i + 50, i, i, i) for i in range(kernels)))
    return path


def upload(name, data):
    head = json.dumps({"options": {}, "files": [{"name": name, "bytes": len(data), "modified_s": 0}]})
    return "POST", "/api/explain/files", head.encode() + b"\n" + data, "application/x-ridge-files"


def uploads():
    """Files to explain."""
    with tempfile.TemporaryDirectory() as folder:
        with open(sqlite(f"{folder}/a.sqlite", 30000), "rb") as file:
            yield "explain: SQLite without an index", *upload("a.sqlite", file.read())
    series = "".join(f'vllm:num_requests_running{{engine="{i}"}} 1\n' for i in range(40000))
    yield "explain: 40,000 engines", *upload("a.prom", series.encode())
    names = "".join(f"a{i} 1\n" for i in range(200000))
    yield "explain: 200,000 names", *upload("a.prom", names.encode())
    yield "explain: a deep trace", *upload("a.json", b'{"traceEvents":' + b"[" * 1000000)
    event = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"a":1,"b":2,"c":3}},'
    yield "explain: a long trace", *upload("a.json", b'{"traceEvents":[' + event * 25000 + b"{}]}")
    bomb = gzip.compress(bytes(512 << 20), 9)
    yield "explain: a bomb of gzip", *upload("a.json.gz", bomb)


def api(_=None):
    """The page's API at options that make each endpoint work most."""
    yield from uploads()
    small, large = "model=llama-3-8b&machine=h200", "model=deepseek-v3&machine=64x8xh200"
    dense = "model=llama-3.1-405b&machine=64x8xh200"
    plan = "model=llama-3-8b&count=20000&max-machines=64&ttft=500ms"
    calls = (
        f"sweep?{small}&batch=1..20000", f"sweep?{small}&batch=1..100&context=1..100",
        f"sweep?{dense}&batch=1..1000", "sweep?model=deepseek-v3&machine=8xh200&batch=1..60&context=1..6",
        f"endpoint?{small}&clients=4096&prompt=100000&output=100000",
        f"endpoint?{small}&clients=4096&prompt=1000&output=1000", f"endpoint?{large}&clients=4096",
        f"plan?{plan}&clients=1000&prompt=10..90&output=10..900", f"plan?{plan}&rate=100&prompt=100&output=400",
        f"plan?{plan}&rate=1000&prompt=10&output=10", f"predict?{large}&clients=4096", f"predict?{dense}&batch=max",
        f"roofline?{large}&clients=4096&compare=h200,h100-sxm,a100-sxm,b200,mi300x", f"pyramid?{dense}",
        f"users?{dense}&target=50ms", f"explain?{large}&observed=280tok/s&clients=4096&output=1000",
        f"attention?{large}&n=256&block=1", f"speculation?{large}&rounds=64&speculate=16", f"schedule?{small}",
        "pages?pages=256&script=" + ",".join(f"append%20{chr(65 + i % 26)}%20100" for i in range(64)),
        "tiles?machine=h200&tile=4096x4096x4096&stages=64&steps=1000",
        "work?op=matmul&m=10000000&n=10000000&k=10000000&machine=h200",
        "models", "models?name=deepseek-v3", "machines", "stacks", "history", "learn", "lab", "openapi.json", "serving")
    for call in calls:
        yield f"/api/{call[:90]}", "GET", f"/api/{call}", None
    yield "the page", "GET", "/", None


GROUPS = {"schemas": schemas, "templates": templates, "prompts": prompts, "large-json": large_json, "api": api}
