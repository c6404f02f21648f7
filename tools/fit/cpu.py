#!/usr/bin/env python3
"""Fits the figures of the CPU engine's kernels (src/roofline/kernels/cpu.h) to rows of ridge_cpu_rows.

    ridge_cpu_rows > rows.jsonl          as often as wanted: the fastest run of a step counts
    tools/fit/cpu.py atlas/stacks/ridge.json rows.jsonl...       writes the entry of "cpu" for AVX2

A time is linear in the figures: least squares of relative errors, with weights that turn them into absolute
ones, since other processes only ever add time. The steps are then split into halves, and each half is
predicted by a fit to the other: the band holds 80 % of them.
"""
import json
import math
import sys

from engine import stack_text

# Bits of a weight as the kernels read it (engine/cpu/pack.h).
BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "q8_0": 8.5, "q6_k": 9, "q5_k": 9, "q5_1": 9, "q5_0": 8.5,
        "q4_k": 5, "q4_1": 5, "q4_0": 4.5}
TILE_TOKENS, STREAM_TOKENS, TOKEN_BLOCK = 3, 8, 132  # of AVX2's kernels
KEY_TILE, KEY_SPAN, JOB_ROWS, JOBS_PER_CORE = 64, 1024, 96, 4
CACHE = ["4", "2", "2", "1"]  # bytes an element, by KvStorage
ELEMENT_BYTES = {"4": 4, "2": 2, "1": 1}
PRODUCT = 2.2  # of an FMA in a register tile; the rows do not tell it from the softmax


def gemm_terms(step, op):
    weights, m, kind = op["k"] * op["n"], op["m"], step["format"]
    unit = weights / step["peak"]
    terms = {("memory",): weights * BITS[kind] / 8 / step["plain"], ("gemm_start",): 1e-6}
    if m <= STREAM_TOKENS:
        terms[(kind, "tile")] = unit * math.ceil(m / TILE_TOKENS)
        terms[(kind, "token")] = unit * m
    else:
        terms[(kind, "panel")] = unit * math.ceil(m / TOKEN_BLOCK)
        terms[(kind, "panel_token")] = unit * m
    return terms, step["launch"]


def attention_terms(step):
    group, dim = step["heads"] / step["kv_heads"], step["head_dim"]
    fresh, past, count, cores = step["fresh"], step["context"], step["batch"], step["cores"]
    keys, blocks = past + fresh, math.ceil(fresh * group / JOB_ROWS)
    jobs, spans = count * step["kv_heads"] * blocks, 1
    if jobs < JOBS_PER_CORE * cores and keys > KEY_SPAN:
        spans = math.ceil(keys / KEY_SPAN)
    jobs *= spans
    unit = math.ceil(jobs / cores) * cores / jobs / step["peak"]
    pairs = fresh * past + fresh * (fresh + 1) / 2
    tiled = KEY_TILE * sum(math.ceil((past + i + 1) / KEY_TILE) for i in range(fresh))
    passes = max(1, blocks * pairs / (fresh * keys))
    cache, heads = CACHE[step["kv"]], count * step["heads"]
    elements = count * step["kv_heads"] * keys * 2 * dim
    terms = {("attention_memory",): elements * ELEMENT_BYTES[cache] / step["plain"],
             ("element", cache): elements * passes * unit, ("score",): heads * tiled * unit,
             ("row",): heads * fresh * dim * spans * unit, ("attention_start",): 1e-6}
    return terms, PRODUCT * heads * pairs * 2 * dim * unit + step["launch"]


def other_terms(step, op):
    """Norms, rope, embedding: as the stack's kinds have them, half of the memory's rate."""
    bytes_moved = op["act_bytes"] + op["kv_bytes"] + op["weight_bytes"]
    return {("other_start",): 1e-6}, step["launch"] + bytes_moved / step["plain"] / 0.5


def rows_of(step):
    for op in step["ops"]:
        if "seconds" not in op:
            continue
        if "m" in op:
            terms, fixed = gemm_terms(step, op)
        elif op["op"] == "attention":
            terms, fixed = attention_terms(step)
        else:
            terms, fixed = other_terms(step, op)
        yield op, terms, fixed


def fit(steps, family=None):
    """Figures by key. Weights 1/|error| make the squares absolute errors."""
    rows = [(op["seconds"], fixed, terms) for step in steps for op, terms, fixed in rows_of(step)
            if family is None or family(op)]
    values = {key: 1.0 for _, _, terms in rows for key in terms}
    columns = {key: [(i, terms[key] / seconds) for i, (seconds, _, terms) in enumerate(rows) if key in terms]
               for key in values}
    weights = [1.0] * len(rows)
    for _ in range(8):
        errors = [(fixed + sum(a * values[k] for k, a in terms.items())) / seconds - 1 for seconds, fixed, terms in rows]
        for _ in range(300):
            for key, column in columns.items():
                down = sum(weights[i] * a * errors[i] for i, a in column)
                value = max(0.0, values[key] - down / sum(weights[i] * a * a for i, a in column))
                moved = value - values[key]
                for i, a in column:
                    errors[i] += a * moved
                values[key] = value
        weights = [1 / max(0.05, abs(e)) for e in errors]
    return values


def predicted(step, values):
    return sum(op["count"] * (fixed + sum(a * values.get(k, 0) for k, a in terms.items()))
               for op, terms, fixed in rows_of(step))


def merged(names):
    """The steps of all files; of equal ones the fastest, since other processes only ever add time."""
    fastest = {}
    for name in names:
        with open(name) as file:
            for line in file:
                step = json.loads(line)
                key = tuple(step[k] for k in ("model", "format", "kv", "batch", "context", "fresh"))
                if key not in fastest or step["seconds"] < fastest[key]["seconds"]:
                    fastest[key] = step
    return list(fastest.values())


def entry(values, low, high):
    def figure(*key):
        return float(f"{values.get(key, 0):.3g}")

    formats = {kind: {"bits": bits, **{f: figure(kind, f) for f in ("tile", "token", "panel", "panel_token")}}
               for kind, bits in BITS.items()}
    caches = {cache: {"element": figure("element", cache), "product": PRODUCT, "score": figure("score"),
                      "row": figure("row")} for cache in ("4", "2", "1")}
    return {"isa": "AVX2", **{f: float(f"{1 / values[(f,)]:.3g}") for f in ("memory", "attention_memory")},
            "tile_tokens": TILE_TOKENS,
            "stream_tokens": STREAM_TOKENS, "token_block": TOKEN_BLOCK,
            **{f: float(f"{values[(f,)] * 1e-6:.2g}") for f in ("gemm_start", "attention_start", "other_start")},
            "low": low, "high": high, "gemm": formats, "attention": caches}


def main():
    stack_file = sys.argv[1]
    steps = merged(sys.argv[2:])
    values = fit(steps)
    print(f"{len(steps)} steps", file=sys.stderr)
    ratios = []
    for half in (0, 1):
        others = fit([s for i, s in enumerate(steps) if i % 2 != half])
        ratios += [(s["seconds"] / predicted(s, {**values, **others}), s) for i, s in enumerate(steps) if i % 2 == half]
    ordered = sorted(r for r, _ in ratios)
    low, high = ordered[len(ordered) // 10], ordered[len(ordered) * 9 // 10]
    for r, s in ratios:
        if r < low or r > high:
            print(f"{r:.2f} {s['model']} {s['format']} kv {s['kv']} batch {s['batch']} context {s['context']} fresh {s['fresh']}",
                  file=sys.stderr)
    errors = sorted(abs(1 / r - 1) for r in ordered)
    print(f"left out: median error {errors[len(errors) // 2]:.3f}, measured / predicted {low:.2f} to {high:.2f} for 80 %, "
          f"median {ordered[len(ordered) // 2]:.2f}", file=sys.stderr)
    with open(stack_file) as file:
        stack = json.load(file)
    fitted = entry(values, round(low, 2), round(high, 2))
    stack["cpu"] = [e for e in stack.get("cpu", []) if e["isa"] != fitted["isa"]] + [fitted]
    with open(stack_file, "w") as file:
        file.write(stack_text(stack) + "\n")


if __name__ == "__main__":
    main()
