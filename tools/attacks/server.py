"""A `ridge serve` of one's own: started, looked at through /proc, ended."""
import ctypes
import mmap
import os
import re
import resource
import signal
import subprocess
import threading
import time

from . import wire

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    """In a child: a tool that is killed leaves no process behind, and Ctrl-C is for the tool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_sanitized(ridge):
    with open(ridge, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"__asan_init") >= 0 or data.find(b"__tsan_init") >= 0


def known_flags(ridge):
    text = subprocess.run([ridge, "serve", "--help"], capture_output=True, text=True, timeout=60)
    return set(re.findall(r"--[a-z-]+", text.stdout))


class Server:
    """Ends with the `with` that it is used in. `port` 0: a free one."""

    running = []

    def __init__(self, ridge, *flags, port=0, slow=1.0, descriptors=None, key=wire.KEY):
        def prepare():
            die_with_parent()
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        command = [ridge, "serve", "--port", str(port), *flags]
        if key is not None:
            command += ["--api-key", key]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RIDGE_")}
        # A sanitizer keeps freed memory for a while; not more of it than the program itself has.
        environment.setdefault("ASAN_OPTIONS", "quarantine_size_mb=8")
        started = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment,
                                        preexec_fn=prepare)
        Server.running.append(self)
        self.pid, self.port, self.output = self.process.pid, None, ""
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(60 * slow) or self.port is None:
            self.kill()
            raise RuntimeError(f"{' '.join(command)} did not get ready: {self.output[-500:]!r}")
        self.start_s = time.monotonic() - started

    def _read(self):
        for line in self.process.stdout:
            text = line.decode("utf-8", "replace")
            self.output = (self.output + text)[-20000:]
            found = re.search(r"^Ridge on .*?:(\d+)/", text)
            if found:
                self.port = int(found.group(1))
            if text.startswith("Serving "):
                self.ready.set()
        self.ready.set()  # it ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait()
        self.reader.join(5)
        self.process.stdout.close()
        if self in Server.running:
            Server.running.remove(self)

    def end(self, limit_s, signals=(signal.SIGTERM,)):
        """Seconds from the last of the signals to the end, and the exit status. (None, None) when
        it is still there after `limit_s`; it is killed then."""
        for number in signals:
            self.process.send_signal(number)
            began = time.monotonic()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None, None
        took = time.monotonic() - began
        self.kill()
        return took, self.process.returncode

    def cpu_s(self):
        """Of all its threads. The clock of another process, as clock_getcpuclockid() names it."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return float("nan")

    def _status_bytes(self, name):
        try:
            with open(f"/proc/{self.pid}/status") as file:
                return int(re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M).group(1)) * 1024
        except (OSError, AttributeError):
            return 0  # it has ended

    def rss(self):
        return self._status_bytes("VmRSS")

    def peak_rss(self):
        """The highest since reset_peak()."""
        return self._status_bytes("VmHWM")

    def reset_peak(self):
        with open(f"/proc/{self.pid}/clear_refs", "w") as file:
            file.write("5")

    def ask(self, *args, **options):
        return wire.ask(self.port, *args, **options)

    def metric(self, name):
        reply = self.ask("GET", "/metrics")
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", reply.body.decode(), re.M))

    def is_quiet(self):
        """Nothing runs, nothing waits: in the engine and on the workers."""
        if not self.alive():
            return True
        if self.metric("vllm:num_requests_running") or self.metric("vllm:num_requests_waiting"):
            return False
        before = self.cpu_s()
        time.sleep(0.05)
        return self.cpu_s() - before < 0.02

    def warm_up(self, kv_tokens=0):
        """Touches what every server touches sooner or later: the engine, a grammar, the page, so many
        tokens of the KV cache. Its memory is compared with what it has after this."""
        for i in range(0, kv_tokens, 200):  # each word is a token or more, and no prompt begins as another
            self.ask("POST", "/v1/completions", wire.completion(f"{i} " + "word " * 200, 1))
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        for body in (wire.completion("word " * 400, 8), wire.completion(response_format=form),
                     wire.completion(["a"] * 32, 32)):
            self.ask("POST", "/v1/completions", body)
        chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        self.ask("POST", "/v1/chat/completions", chat)
        for target in ("/", "/metrics", "/api/predict?model=llama-3-8b&machine=h200"):
            self.ask("GET", target)
