"""Figures of docs/serving.md that `ridge load` does not print, from a running `ridge serve`.

  serving_probe.py prefix URL   first token of a prompt of 2,000 tokens: new, then seen before
  serving_probe.py itl URL      gaps of 16 streams while a prompt of 8,000 tokens arrives
  serving_probe.py spec URL     tok/s on repetitive text, with and without --speculate
"""
import json, sys, time, threading, urllib.request
def stream(url, body, on_chunk):
    body = dict(body, stream=True, stream_options={"include_usage": True})
    req = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    usage = None
    with urllib.request.urlopen(req, timeout=120) as r:
        for line in r:
            if not line.startswith(b"data: ") or b"[DONE]" in line: continue
            d = json.loads(line[6:])
            if d.get("usage"): usage = d["usage"]
            if d["choices"]: on_chunk(time.perf_counter())
    return usage
def timed(url, body):
    t0 = time.perf_counter(); ts = []
    u = stream(url, body, ts.append)
    return (ts[0] - t0, ts[-1] - ts[0], ts, u)
import random
random.seed(int(time.time()))
def ids(n, lo=100, hi=30000): return [random.randrange(lo, hi) for _ in range(n)]
what, url = sys.argv[1], sys.argv[2]
if what == "prefix":
    hi = int(sys.argv[3]) if len(sys.argv) > 3 else 30000
    timed(url, {"prompt": ids(100, hi=hi), "max_tokens": 8, "ignore_eos": True, "temperature": 0})
    p = ids(2000, hi=hi)
    for i in range(3):
        r = timed(url, {"prompt": p, "max_tokens": 8, "ignore_eos": True, "temperature": 0})
        print("prefix: TTFT %.2f ms" % (1e3 * r[0]), r[3].get("prompt_tokens_details"))
    r = timed(url, {"prompt": ids(17, hi=hi), "max_tokens": 8, "ignore_eos": True, "temperature": 0})
    print("prompt of 17 tokens: TTFT %.2f ms" % (1e3 * r[0]))
if what == "itl":
    gaps, threads, start = [], [], []
    arrived = [1e99, -1e99]
    def run():
        r = timed(url, {"prompt": ids(512), "max_tokens": 400, "ignore_eos": True, "temperature": 0})
        ts = r[2]
        for a, b in zip(ts, ts[1:]): gaps.append((a, b - a))
    for _ in range(16):
        t = threading.Thread(target=run); t.start(); threads.append(t)
    time.sleep(1.0)
    arrived[0] = time.perf_counter()
    r = timed(url, {"prompt": ids(8000), "max_tokens": 4, "ignore_eos": True, "temperature": 0})
    arrived[1] = arrived[0] + r[0]
    for t in threads: t.join()
    inside = sorted(g for a, g in gaps if arrived[0] <= a <= arrived[1])
    outside = sorted(g for a, g in gaps if a < arrived[0] - .05)
    q = lambda v, p: 1e3 * v[min(len(v) - 1, int(p * len(v)))] if v else -1
    print("itl: 8000-token prompt TTFT %.1f ms; gaps meanwhile p50 %.2f p99 %.2f max %.2f ms (n %d); before p50 %.2f p99 %.2f" % (1e3 * r[0], q(inside, .5), q(inside, .99), q(inside, 1), len(inside), q(outside, .5), q(outside, .99)))
if what == "spec":
    texts = ["one two three four five six seven eight " * 12, "def add(a, b):\n    return a + b\n\n" * 10, "The quick brown fox jumps over the lazy dog. " * 10]
    tok = 0; sec = 0; out = []
    for rounds in range(2):
        for t in texts:
            for temp in (0, 0.7):
                r = timed(url, {"prompt": t, "max_tokens": 200, "ignore_eos": True, "temperature": temp, "seed": 5})
                if rounds: tok += r[3]["completion_tokens"] - 1; sec += r[1]
    print("spec: %.1f tok/s" % (tok / sec))
    r = urllib.request.urlopen(url + "/metrics").read().decode()
    print([l for l in r.split("\n") if "spec_decode" in l and not l.startswith("#") and "per_pos" not in l])
