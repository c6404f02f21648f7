"""One attack under way: what it starts, what it measures, and against which bounds."""
import contextlib
import multiprocessing
import os
import time

from . import wire
from .server import Server, die_with_parent
from .watch import Watcher

MIB = 1 << 20

# The bars of every attack. Those of time grow with --slow.
HEALTH_S = 0.050
COMPLETION_S = 1.0
CROWD_BYTES = 512 * MIB  # with 2,048 hostile connections
RSS_AFTER = 1.5          # of what it was before
TERM_S = 1.0             # after the time of --drain
# One request: at most this, and so much more for each MiB of its body.
REQUEST_CPU_S, REQUEST_CPU_PER_MIB = 0.100, 0.15
REQUEST_BYTES, REQUEST_BYTES_PER_MIB = 64 * MIB, 12


class Check:
    def __init__(self, what, value, bound, unit, ok):
        self.what, self.value, self.bound, self.unit, self.ok = what, value, bound, unit, ok

    def text(self):
        if self.bound is None:
            return f"{self.what} {shown(self.value, self.unit)}"
        return f"{self.what} {shown(self.value, self.unit)} of {shown(self.bound, self.unit)}"

    def json(self):
        return {"what": self.what, "value": self.value, "bound": self.bound, "unit": self.unit,
                "ok": self.ok}


def shown(value, unit):
    if value is None:
        return "never"
    if unit == "s":
        return f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.1f} s"
    if unit == "B":
        return f"{value / MIB:.0f} MiB"
    return f"{value}{unit}"


def niced(function, pipe, arguments):
    """The server and its watcher come first: attackers get what they leave."""
    die_with_parent()
    os.nice(19)
    try:
        pipe.send((True, function(*arguments)))
    except Exception as error:  # whatever it is, the attack reports it
        pipe.send((False, f"{type(error).__name__}: {error}"))


class Attackers:
    """Processes at the lowest priority that run `function`, one for each tuple of arguments."""

    def __init__(self, function, tuples):
        context = multiprocessing.get_context("fork")
        self.members = []
        for arguments in tuples:
            mine, theirs = context.Pipe()
            process = context.Process(target=niced, args=(function, theirs, arguments), daemon=True)
            process.start()
            theirs.close()
            self.members.append((process, mine))

    def results(self, limit_s):
        """What the functions returned. Throws where one failed or took longer than `limit_s`."""
        until = time.monotonic() + limit_s
        try:
            found = []
            for _, pipe in self.members:
                if not pipe.poll(max(0.0, until - time.monotonic())):
                    raise RuntimeError(f"an attacker is still busy after {limit_s:.0f} s")
                fine, result = pipe.recv()
                if not fine:
                    raise RuntimeError(result)
                found.append(result)
            return found
        finally:
            self.end()

    def end(self):
        for process, _ in self.members:
            process.kill()
            process.join()


class Trial:
    def __init__(self, name, options):
        self.name, self.options = name, options
        self.short, self.slow, self.ridge = options.short, options.slow, options.ridge
        self.checks, self.figures = [], {}

    # What was measured ------------------------------------------------------------------------

    def check(self, what, value, bound, unit="", ok=None):
        """`value` must be at most `bound`. A time that never came is None."""
        if ok is None:
            ok = value is not None and value <= bound
        self.checks.append(Check(what, value, bound, unit, bool(ok)))

    def time(self, what, seconds, bound):
        self.check(what, seconds, bound * self.slow, "s")

    def memory(self, what, size, bound):
        """A sanitizer's allocator keeps what is freed and triples what is not: there the figure is
        shown and no bar is held against it."""
        self.check(what, size, bound, "B", ok=True if self.options.sanitized else None)

    def count(self, what, right, of):
        self.check(what, right, of, "", right == of)

    def require(self, what, fine):
        self.check(what, "yes" if fine else "no", None, "", bool(fine))

    def note(self, what, value, unit=""):
        self.checks.append(Check(what, value, None, unit, True))

    def fail(self, what):
        self.checks.append(Check(what, "", None, "", False))

    ok = property(lambda self: bool(self.checks) and all(check.ok for check in self.checks))

    # What is attacked -------------------------------------------------------------------------

    def server(self, *flags, **options):
        return Server(self.ridge, *flags, slow=self.slow, **options)

    def attackers(self, function, *tuples):
        return Attackers(function, tuples)

    @contextlib.contextmanager
    def attacked(self, *flags, drain=1, completion_bar=True, kv_tokens=0, **options):
        """A server that is watched from here to the end of the `with`, then compared with what it
        was before, and ended. `kv_tokens`: it has a KV cache of so many tokens, all touched before,
        for attacks that fill it."""
        if kv_tokens:
            flags += ("--kv-tokens", str(kv_tokens))
        with self.server("--drain", str(drain), *flags, **options) as server:
            server.warm_up(kv_tokens)
            before = server.rss()
            watcher = Watcher(server)
            try:
                with watcher:
                    yield server
            finally:
                if hasattr(watcher, "completion"):
                    self._report(watcher, completion_bar)
            self.settle(server, before)
            self.end(server, drain)

    def _report(self, watcher, completion_bar):
        """The worst sample counts. What the machine itself makes a client of the echo wait is added
        to the bars: on a quiet machine a few milliseconds."""
        for what, samples, bar in (("/health", watcher.health, HEALTH_S),
                                   ("completion", watcher.completion, COMPLETION_S)):
            if what == "/health" or completion_bar:
                self.check(f"{what} ({len(samples)})", samples.worst,
                           bar * self.slow + watcher.control.worst, "s")
            else:
                self.note(f"{what} ({len(samples)})", samples.worst, "s")
            # Where attackers fill the queue as any client may, a completion may be told so.
            # Where the queue is full of requests with the key, a completion waits its turn.
            turn = what == "completion" and not completion_bar
            allowed = {"status 429", "TimeoutError"} if turn else set()
            if set(samples.problems) - allowed:
                self.fail(f"{what}: {samples.failed} of {len(samples)} without an answer "
                          f"({', '.join(samples.problems)})")
            self.figures[what] = {"samples": len(samples), "worst_s": samples.worst,
                                  "p50_s": samples.percentile(0.5),
                                  "p99_s": samples.percentile(0.99), "failed": samples.failed}
        self.figures["control"] = {"worst_s": watcher.control.worst}
        self.figures["cpu_s"] = watcher.cpu_s
        self.figures["peak_rss_bytes"] = watcher.peak_rss
        self.note("peak RSS", watcher.peak_rss, "B")

    def settle(self, server, before):
        """The attackers are gone: nothing runs for them any more, and their memory is back."""
        if not server.alive():
            return self.fail(f"the server ended: {server.output[-300:]!r}")
        limit = 5 * self.slow
        try:
            if not wire.wait_until(server.is_quiet, limit):
                self.fail(f"busy {limit:.0f} s after the attack")
        except (OSError, AttributeError):
            self.fail("no answer at /metrics after the attack")
        wire.wait_until(lambda: server.rss() <= RSS_AFTER * before, limit)
        self.memory("RSS after", server.rss(), RSS_AFTER * before)
        self.figures["rss_before_bytes"], self.figures["rss_after_bytes"] = before, server.rss()

    def end(self, server, drain, what="SIGTERM"):
        """Ends it, within its drain and a second."""
        if not server.alive():
            return self.fail(f"the server ended: {server.output[-300:]!r}")
        bar = drain + TERM_S * self.slow
        took, status = server.end(bar + 5)
        self.check(what, took, bar, "s")
        if status not in (0, None):
            self.fail(f"{what}: exit status {status}")
        self.figures.setdefault("end_s", {})[what] = took


ATTACKS = {}  # name -> function, in the order in which they run


def attack(name):
    def register(function):
        ATTACKS[name] = function
        return function

    return register
