"""One command of the program with hostile input: how long it takes, how much memory, what it says."""
import os
import resource
import subprocess
import time

from .server import die_with_parent

MEMORY_BYTES = 4 << 30  # of address space; sanitizers need more than any machine has


class Ended:
    def __init__(self, seconds, status, output):
        self.seconds, self.status, self.output = seconds, status, output  # None: killed at its limit


def start(trial, arguments, environment=None, standard_input=subprocess.DEVNULL):
    def prepare():
        die_with_parent()
        if not trial.options.sanitized:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    process = subprocess.Popen([trial.ridge, *arguments], env={**os.environ, **(environment or {})},
                               stdin=standard_input, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, preexec_fn=prepare)
    process.began = time.monotonic()
    return process


def finish(process, limit_s):
    """What became of it; it is killed after `limit_s`."""
    killed = False
    try:
        output, _ = process.communicate(timeout=max(0.1, limit_s - (time.monotonic() - process.began)))
    except subprocess.TimeoutExpired:
        killed = True
        process.kill()
        output, _ = process.communicate()
    took = time.monotonic() - process.began
    return Ended(took, None if killed else process.returncode, output.decode("utf-8", "replace"))


def call(trial, *arguments, limit_s=30.0, **options):
    return finish(start(trial, arguments, **options), limit_s)
