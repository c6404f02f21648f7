"""What one request costs at most, and what many of the worst ones at once do to the others."""
import time

from . import kinds, wire
from .trial import (MIB, REQUEST_BYTES, REQUEST_BYTES_PER_MIB, REQUEST_CPU_PER_MIB, REQUEST_CPU_S, attack)

PLAN_CPU_S = 60.0  # the limit of /api/plan, on two threads
GIVE_UP_S = 10.0  # the client of a request that costs more goes away; then it must end, too


def encoded(method, target, body, kind="application/json"):
    return wire.request(method, target, body, kind=kind, more=("Connection: close",))


def cost(trial, server, data):
    """CPU seconds, the growth of RSS and the status of one request on a quiet server. The CPU
    counts until the server is quiet again; None where it never is."""
    wire.wait_until(server.is_quiet, 5 * trial.slow)
    before, cpu = server.rss(), server.cpu_s()
    server.reset_peak()
    status = "none"
    try:
        with wire.connect(server.port, timeout=GIVE_UP_S * trial.slow) as sock:
            wire.send_all(sock, data)
            reply = wire.read_reply(sock)
            status = reply.status if reply else "cut"
    except OSError:
        pass
    spent, peak = server.cpu_s() - cpu, server.peak_rss() - before
    try:
        quiet = status != "none" or wire.wait_until(server.is_quiet, 2 * trial.slow)
    except (OSError, AttributeError):
        quiet = False
    return (spent if quiet else None), peak, status


def requests_of(trial, group):
    """(kind, bytes of the request, bytes of its body). Bounds grow with the body, so that the short
    form's bodies prove the same."""
    size = (2 if trial.short else 8) * MIB - 4096
    found = []
    for kind, *request in kinds.GROUPS[group](size):
        data = encoded(*request)
        found.append((kind, data, len(data) - data.index(b"\r\n\r\n") - 4))
    return found


def cost_table(trial, requests):
    """Every kind of a group, alone."""
    rows, worst = [], None
    server = trial.server("--drain", "0")
    try:
        server.warm_up()
        for kind, data, size in requests:
            spent, peak, status = cost(trial, server, data)
            cpu_bar = (REQUEST_CPU_S + REQUEST_CPU_PER_MIB * size / MIB) * trial.slow
            if kind.startswith("/api/plan"):  # a search, one at a time, at the lowest priority
                cpu_bar = PLAN_CPU_S * trial.slow
            memory_bar = REQUEST_BYTES + REQUEST_BYTES_PER_MIB * size
            rows.append({"kind": kind, "body_bytes": size, "cpu_s": spent, "cpu_bar_s": cpu_bar,
                         "rss_bytes": peak, "rss_bar_bytes": memory_bar, "status": status})
            share = float("inf") if spent is None else spent / cpu_bar
            if worst is None or share > worst[0]:
                worst = (share, kind, spent, cpu_bar)
            # Whatever costs more than it may is named; the others are in the table of --json.
            if share > 1:
                trial.check(f"CPU of {kind} ({status})", spent, cpu_bar, "s")
            if peak > memory_bar:
                trial.memory(f"memory of {kind} ({status})", peak, memory_bar)
            if status in ("none", "cut") or (status >= 500 and status != 503):
                trial.fail(f"{kind}: answer {status}")
            if spent is None or not server.alive():
                server.kill()
                server = trial.server("--drain", "0")
                server.warm_up()
    finally:
        server.kill()
    trial.figures["costs"] = rows
    held = sum(row["cpu_s"] is not None and row["cpu_s"] <= row["cpu_bar_s"]
               and row["rss_bytes"] <= row["rss_bar_bytes"] for row in rows)
    trial.note("kinds within their bounds", f"{held} of {len(rows)}")
    if worst[0] <= 1:
        trial.check(f"most CPU, {worst[1]}", worst[2], worst[3], "s")


def repeat(port, requests, seconds, offset):
    """Sends the requests over and over. Returns the statuses."""
    found, until, at = {}, time.monotonic() + seconds, offset
    while time.monotonic() < until:
        try:
            with wire.connect(port, timeout=max(0.5, until - time.monotonic())) as sock:
                wire.send_all(sock, requests[at % len(requests)][1])
                reply = wire.read_reply(sock)
                status = reply.status if reply else "cut"
        except OSError:
            status = "none"
        at += 1
        found[str(status)] = found.get(str(status), 0) + 1
    return found


def bombard(trial, requests, clients):
    """All kinds by many clients at once."""
    seconds = 2 if trial.short else 20
    with trial.attacked() as server:
        members = trial.attackers(repeat, *[(server.port, requests, seconds, 5 * i) for i in range(clients)])
        total = {}
        for found in members.results(seconds + 60 * trial.slow):
            for status, times in found.items():
                total[status] = total.get(status, 0) + times
        trial.figures["statuses"] = total
        trial.note(f"answers to {clients} clients", sum(total.values()))


def exhaust(trial, group, clients):
    requests = requests_of(trial, group)
    cost_table(trial, requests)
    bombard(trial, requests, clients)


@attack("schemas")
def schemas(trial):
    """No JSON schema costs more than its bound, and eight clients that send the worst ones do not
    stop the server."""
    exhaust(trial, "schemas", 8)


@attack("templates")
def templates(trial):
    """The same for messages, tools and arguments of chat templates."""
    exhaust(trial, "templates", 8)


@attack("prompts")
def prompts(trial):
    """The same for prompts of up to 8 MiB, of many kinds of text, which regular expressions split."""
    exhaust(trial, "prompts", 8)


@attack("large-json")
def large_json(trial):
    """The same for bodies of 8 MiB whose tree of values is far larger than they are."""
    exhaust(trial, "large-json", 16)


@attack("api")
def api(trial):
    """The same for the page's API, which is open on loopback: 16 clients of the largest sweep, of
    plans, of endpoints and of all others. The paid API does not wait for them."""
    exhaust(trial, "api", 16)
