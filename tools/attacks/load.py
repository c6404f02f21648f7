"""Many streams, a third of which are given up: none of the others is lost or differs."""
import asyncio
import json
import random
import resource
import time

from . import wire
from .trial import attack

ABORTED = 0.35
PROMPTS = 24


def bodies():
    """Prompts of which some begin alike, so that the prefix cache has a part in it."""
    common = "The memory of a computer has levels. "
    return [wire.completion(common * (i % 4) + f"Level {i} is", 16 + 2 * i, stream=True,
                            stream_options={"include_usage": True}) for i in range(PROMPTS)]


def text_of(data):
    """The text of a whole stream; None where it is not whole."""
    text, whole, finish = "", False, None
    for line in data.decode("utf-8", "replace").split("\n"):
        if line == "data: [DONE]":
            whole = True
        elif line.startswith("data: "):
            chunk = json.loads(line[6:])
            for choice in chunk.get("choices", ()):
                text += choice["text"]
                finish = choice["finish_reason"] or finish
            if "error" in chunk:
                return None
    return text if whole and finish else None


async def read_stream(reader, most_chunks=None):
    """(status, body), or (status, None) once `most_chunks` chunks have come."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    body = b""
    if b"chunked" not in head.lower():
        return status, await reader.read()
    chunks = 0
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += (await reader.readexactly(size + 2))[:-2]
        chunks += 1
        if size == 0:
            return status, body
        if most_chunks is not None and chunks >= most_chunks:
            return status, None


async def ask_stream(port, data, most_chunks=None):
    # Sent before another stream has its turn: a server may close a connection that is silent for
    # seconds, and a busy client of a thousand streams comes back that late.
    sock = wire.connect(port)
    sock.sendall(data)
    sock.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        return await read_stream(reader, most_chunks)
    finally:
        writer.transport.abort()


async def load(port, streams, seconds, seed):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    requests = [wire.request("POST", "/v1/completions", body) for body in bodies()]
    alone = [text_of((await ask_stream(port, data))[1]) for data in requests]
    result = {"whole": 0, "aborted": 0, "different": 0, "lost": 0, "refused": 0, "why_lost": {}}
    until = time.monotonic() + seconds

    def lost(why):
        result["lost"] += 1
        result["why_lost"][why] = result["why_lost"].get(why, 0) + 1

    async def client(number):
        random_ = random.Random(seed * 100003 + number)
        while time.monotonic() < until:
            which = random_.randrange(PROMPTS)
            # Some leave before the first token, some in the middle.
            leaves = random_.randint(1, 24) if random_.random() < ABORTED else None
            try:
                if leaves == 1:
                    try:
                        await asyncio.wait_for(ask_stream(port, requests[which]), random_.random() / 10)
                        result["whole"] += 1
                    except (TimeoutError, asyncio.TimeoutError):
                        result["aborted"] += 1
                    continue
                status, body = await ask_stream(port, requests[which], leaves)
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                lost(f"{type(error).__name__}: {error}")
                continue
            if body is None:
                result["aborted"] += 1
            elif status in (429, 503):
                result["refused"] += 1
                await asyncio.sleep(0.1)
            else:
                text = text_of(body)
                if text is None:
                    lost(f"status {status}: {body[-80:]!r}")
                else:
                    result["whole"] += 1
                    result["different"] += text != alone[which]

    await asyncio.gather(*(client(i) for i in range(streams)))
    if not all(alone):
        lost("an answer alone")
    return result


def run_load(port, streams, seconds, seed):
    return asyncio.run(load(port, streams, seconds, seed))


@attack("aborts")
def aborts(trial):
    """64 streams (64, 256 and 1,000 for a minute each in the long form) at temperature 0, of which
    35 % are given up: every other answer comes whole and is the one that the request gets alone."""
    for streams, seconds in ((64, 6),) if trial.short else ((64, 60), (256, 60), (1000, 60)):
        with trial.attacked(completion_bar=False) as server:
            result = trial.attackers(run_load, (server.port, streams, seconds, streams)).results(
                seconds + 120 * trial.slow)[0]
            trial.figures[f"{streams} streams"] = result
            trial.note(f"{streams} streams: whole", result["whole"])
            trial.note("aborted", result["aborted"])
            trial.check("lost", result["lost"], 0)
            for why in list(result["why_lost"])[:3]:
                trial.fail(f"lost {result['why_lost'][why]}: {why}")
            trial.check("different", result["different"], 0)
            trial.require("some whole and some aborted", result["whole"] and result["aborted"])
