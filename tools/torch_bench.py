#!/usr/bin/env python3
"""What PyTorch does on this GPU in the cases of tools/gpu_check's table: random bf16 weights, medians.

    tools/torch_bench.py [--json FILE] [--only PREFIX,...] [--budget SECONDS]

Decode steps and prompts: one compiled layer function, called with every layer's own weights, the whole
step captured into a CUDA graph. Each case takes the fastest attention of those PyTorch has; products of
one row are Inductor's tuned reductions, all others cuBLAS. Once the budget is spent, no further case begins.
Generous to PyTorch: the cache is exactly as long as the context, so attention needs no mask.
"""
import argparse
import json
import math
import statistics
import sys
import time

START = time.monotonic()  # importing PyTorch counts

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {
    "llama-2-7b": dict(layers=32, hidden=4096, heads=32, kv_heads=32, head=128, ffn=11008, vocab=32000),
    "llama-3-8b": dict(layers=32, hidden=4096, heads=32, kv_heads=8, head=128, ffn=14336, vocab=128256),
}
DECODE = [("llama-2-7b", 1, 128), ("llama-3-8b", 1, 128), ("llama-3-8b", 8, 1024), ("llama-3-8b", 32, 1024),
          ("llama-3-8b", 64, 1024)]
LONG = [("llama-3-8b", 1, 8192), ("llama-3-8b", 1, 32768)]
PREFILL = [("llama-3-8b", 2048), ("llama-3-8b", 8192)]
# The memory-efficient backend and flex_attention were never the fastest on an H200.
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
PLAIN, TUNED = "default", "max-autotune-no-cudagraphs"


class Bench:
    def __init__(self, options):
        self.options = options
        self.results, self.notes = {}, []

    def spent(self):
        return time.monotonic() - START

    def wanted(self, case):
        if self.options.only and not any(case.startswith(p) for p in self.options.only.split(",")):
            return False
        if self.spent() < self.options.budget:
            return True
        self.note(f"{case}: left out after {self.spent():.0f} s")
        return False

    def note(self, text):
        self.notes.append(text)
        print(f"# {text}", flush=True)

    def result(self, case, seconds, how, flops=None):
        entry = dict(ms=seconds * 1e3, how=how)
        rate = ""
        if flops:
            entry["tflops"] = flops / seconds * 1e-12
            rate = f"{entry['tflops']:8.1f} TFLOP/s"
        self.results[case] = entry
        print(f"{case:34} {entry['ms']:9.3f} ms {rate:16}  {how}  (at {self.spent():.0f} s)", flush=True)
        if self.options.json:
            with open(self.options.json, "w") as file:
                json.dump(dict(device=torch.cuda.get_device_name(), torch=torch.__version__,
                               seconds=self.spent(), results=self.results, notes=self.notes), file, indent=1)

    def attempt(self, what, work):
        """None where PyTorch cannot, with the reason said."""
        try:
            return work()
        except Exception as error:  # a missing backend is a result
            self.note(f"{what}: {type(error).__name__}: {str(error).strip().splitlines()[0][:140] if str(error) else ''}")
            return None


def seconds_of(work, repeats=20, least=0.0):
    """Median of back-to-back repeats by the device's clock; at least `least` seconds of them."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    times = []
    while len(times) < repeats or sum(times) < least:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        events[0].record()
        for event in events[1:]:
            work()
            event.record()
        torch.cuda.synchronize()
        times += [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]
    return statistics.median(times)


def graph_of(work):
    """`work` as a CUDA graph; the first calls compile and tune."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def random(*shape, deviation=0.02):
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0, deviation)


class Model:
    def __init__(self, shape):
        self.__dict__.update(shape)
        rows = (self.heads + 2 * self.kv_heads) * self.head
        self.weights = [(random(rows, self.hidden), random(self.hidden, self.heads * self.head),
                         random(2 * self.ffn, self.hidden), random(self.hidden, self.ffn))
                        for _ in range(self.layers)]
        self.norms = [1 + random(self.hidden) for _ in range(2 * self.layers + 1)]
        self.embed, self.out = random(self.vocab, self.hidden), random(self.vocab, self.hidden)

    def flops(self, tokens):
        """Of a prompt: products, causal attention, the head for the last token."""
        products = sum(w.numel() for w in self.weights[0]) * 2.0 * tokens
        attention = 4.0 * tokens * tokens * self.heads * self.head / 2
        return self.layers * (products + attention) + 2.0 * self.vocab * self.hidden


def norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(how, q, k, v, causal):
    """q [batch, heads, n, d], k and v [batch, kv heads, m, d]."""
    if how == "grouped":  # one query: the heads of a group as rows of one matrix
        b, h, _, d = q.shape
        return F.scaled_dot_product_attention(q.reshape(b, k.shape[1], -1, d), k, v).reshape(b, h, 1, d)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def layer_of(model, how, causal):
    """From this layer's normed input and the residual to the next layer's: norms fuse with what is before."""
    heads, kv_heads, head = model.heads, model.kv_heads, model.head

    def layer(residual, x, qkv_w, out_w, gate_up_w, down_w, mlp_norm, next_norm, keys, values, position, cos, sin):
        batch, tokens = keys.shape[0], x.shape[0] // keys.shape[0]
        qkv = F.linear(x, qkv_w).view(batch, tokens, heads + 2 * kv_heads, head).transpose(1, 2)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), 1)
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        keys[:, :, position] = k
        values[:, :, position] = v
        if causal:  # a prompt from the start needs not read back what it wrote
            mixed = attend(how, q, k, v, True)
        else:
            mixed = attend(how, q, keys, values, False)
        mixed = mixed.transpose(1, 2).reshape(batch * tokens, heads * head)
        residual = residual + F.linear(mixed, out_w)
        gate, up = F.linear(norm(residual, mlp_norm), gate_up_w).chunk(2, -1)
        residual = residual + F.linear(F.silu(gate) * up, down_w)
        return residual, norm(residual, next_norm)

    return layer


def angles(model, positions):
    rate = 500000.0 ** (-torch.arange(0, model.head, 2, device="cuda") / model.head)
    angle = torch.outer(positions.float(), rate)
    return angle.cos().bfloat16(), angle.sin().bfloat16()


def step_seconds(model, batch, tokens, context, how, mode, repeats):
    """A step of `tokens` tokens of each sequence that ends at `context`."""
    torch._dynamo.reset()
    causal = tokens > 1
    plain = layer_of(model, how, causal)
    layer = torch.compile(plain, dynamic=False, mode=mode)
    head = torch.compile(lambda x, w: F.linear(x, w).argmax(-1), dynamic=False, mode=mode)
    caches = [[random(batch, model.kv_heads, context, model.head, deviation=1) for _ in range(2)]
              for _ in range(model.layers)]
    position = torch.arange(context - tokens, context, device="cuda")
    cos, sin = angles(model, position)
    ids = torch.randint(0, model.vocab, (batch * tokens,), device="cuda")
    chosen = torch.zeros(batch, dtype=torch.long, device="cuda")

    def arguments(i, residual, x):
        return (residual, x, *model.weights[i], model.norms[2 * i], model.norms[2 * i + 1], *caches[i], position,
                cos, sin)

    def step():
        residual = F.embedding(ids, model.embed)
        x = norm(residual, model.norms[-1])
        for i in range(model.layers):
            residual, x = layer(*arguments(i, residual, x))
        last = x.view(batch, tokens, -1)[:, -1]
        chosen.copy_(head(last, model.out))

    residual = F.embedding(ids, model.embed)
    x = norm(residual, model.norms[-1])
    right, found = plain(*arguments(0, residual, x))[0].float(), layer(*arguments(0, residual, x))[0].float()
    error = ((right - found).norm() / right.norm()).item()
    if not error < 2e-2:  # bf16 in another order
        raise ArithmeticError(f"compiled and plain layer differ by {error:.2g}")
    graph = graph_of(step)
    seconds = seconds_of(graph.replay, repeats, 0.2)
    del graph
    return seconds


def fastest_attention(bench, model, batch, tokens, context, case):
    """The ways PyTorch has, fastest first: [(seconds a layer, name, how, backend)]."""
    count = 32 if tokens == 1 else 2
    caches = [[random(batch, model.kv_heads, context, model.head, deviation=1) for _ in range(2)]
              for _ in range(count)]
    q = random(batch, model.heads, tokens, model.head, deviation=1)
    ways = [("sdpa", "flash"), ("sdpa", "cudnn")]
    if tokens == 1:
        ways += [("grouped", "flash"), ("grouped", "cudnn")]
    found = []
    for how, backend in ways:
        def time_it():
            with sdpa_kernel(BACKENDS[backend]):
                graph = graph_of(lambda: [attend(how, q, k, v, tokens > 1) for k, v in caches])
                return seconds_of(graph.replay, 10) / count
        name = f"{how} {backend}"
        seconds = bench.attempt(f"{case} attention by {name}", time_it)
        if seconds:
            found.append((seconds, name, how, backend))
    found.sort(key=lambda each: each[0])
    bench.note(f"{case} attention, us a layer: " + ", ".join(f"{n} {s * 1e6:.1f}" for s, n, _, _ in found))
    return found


def steps(bench, model, case, batch, tokens, context, mode, flops=None):
    for _, name, how, backend in fastest_attention(bench, model, batch, tokens, context, case):
        def time_it():
            with sdpa_kernel(BACKENDS[backend]):
                return step_seconds(model, batch, tokens, context, how, mode, 20 if tokens == 1 else 5)
        seconds = bench.attempt(f"{case} with {name}", time_it)
        if seconds:  # else the next, where the fastest cannot be compiled
            bench.result(case, seconds, f"{name}, {mode}", flops)
            break
    torch.cuda.empty_cache()


def gemms(bench):
    shape = SHAPES["llama-3-8b"]
    rows = (shape["heads"] + 2 * shape["kv_heads"]) * shape["head"]
    cases = [("ceiling/gemm", 8192, 8192, 8192)]
    for tokens in (2048, 8192):
        cases += [(f"gemm/{tokens}/qkv", tokens, rows, shape["hidden"]),
                  (f"gemm/{tokens}/out", tokens, shape["hidden"], shape["heads"] * shape["head"]),
                  (f"gemm/{tokens}/gate_up", tokens, 2 * shape["ffn"], shape["hidden"]),
                  (f"gemm/{tokens}/down", tokens, shape["hidden"], shape["ffn"])]
    for case, m, n, k in cases:
        if not bench.wanted(case):
            continue
        a, b = random(m, k, deviation=1), random(n, k)
        to = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        sustained = 0.6 if case == "ceiling/gemm" else 0.1
        seconds = seconds_of(lambda: torch.mm(a, b.t(), out=to), 20, sustained)
        bench.result(case, seconds, "torch.mm", 2.0 * m * n * k)


def causal_attention(bench, tokens=8192, heads=32, head=128):
    case = f"attention/causal/{tokens}/{heads}x{head}"
    if not bench.wanted(case):
        return
    q, k, v = (random(1, heads, tokens, head, deviation=1) for _ in range(3))
    best = None
    for name in ("cudnn", "flash"):
        def time_it():
            with sdpa_kernel(BACKENDS[name]):
                return seconds_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 20, 0.1)
        seconds = bench.attempt(f"{case} by {name}", time_it)
        if seconds:
            flops = 4.0 * tokens * tokens * heads * head / 2
            bench.result(f"{case}/{name}", seconds, f"sdpa {name}", flops)
            best = min(best or (math.inf, ""), (seconds, f"sdpa {name}"))
    if best:
        bench.result(case, best[0], best[1], flops)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="results as JSON into this file")
    parser.add_argument("--only", help="cases that begin with one of these, by commas")
    parser.add_argument("--budget", type=float, default=150, help="seconds after which no case begins")
    bench = Bench(parser.parse_args())
    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    torch._dynamo.config.recompile_limit = 64
    torch.manual_seed(1)
    bench.note(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, import took {bench.spent():.0f} s")
    with torch.no_grad():
        bench.attempt("gemm", lambda: gemms(bench))
        bench.attempt("attention", lambda: causal_attention(bench))
        held, model = None, None
        decode = lambda some: [(n, f"decode/{n}/bf16/{b}/{c}", b, 1, c) for n, b, c in some]
        prefill = [(n, f"prefill/{n}/bf16/{t}", 1, t, t) for n, t in PREFILL]
        cases = decode(DECODE) + prefill + decode(LONG)
        for name, case, batch, tokens, context in cases:
            if not bench.wanted(case):
                continue
            if held != name:
                model = None
                torch.cuda.empty_cache()
                model, held = Model(SHAPES[name]), name
            mode = TUNED if batch * tokens == 1 else PLAIN
            flops = model.flops(tokens) if tokens > 1 else None
            bench.attempt(case, lambda: steps(bench, model, case, batch, tokens, context, mode, flops))
    bench.note(f"all in {bench.spent():.0f} s")


if __name__ == "__main__":
    main()
