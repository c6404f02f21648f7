#!/usr/bin/env python3
"""The table of one call of tools/gpu_check, as Markdown.

    tools/gpu_table.py RESULTS [TORCH_JSON]

RESULTS: what the benchmarks printed; lines `RESULT <case> <value> <unit> <share or ->` count, and the lines of
bench/cuda_attention_bench. The value is a time (ms) or a rate (TFLOP/s, TB/s); the share is of the read ceiling.
TORCH_JSON: of tools/torch_bench.py in the same call. Prompts are held against the products of that call, attention
against cuDNN's. What was not measured is a dash; what misses what was asked for is bold.
"""
import json
import re
import sys

# Case, what to call it, the share of the ceiling asked for, how many times PyTorch's speed.
ROWS = [
    ("decode/llama-2-7b/bf16/1/128", "Llama-2-7B bf16, batch 1, context 128", 0.88, None),
    ("decode/llama-3-8b/bf16/1/128", "Llama-3-8B bf16, batch 1, context 128", 0.88, None),
    ("decode/llama-3-8b/bf16/1/8192", "same, context 8192", 0.80, None),
    ("decode/llama-3-8b/bf16/1/32768", "same, context 32768", 0.80, None),
    ("decode/llama-3-8b/bf16-fp8/1/32768", "same, KV cache in fp8", None, None),
    ("decode/llama-3-8b/fp8/1/128", "Llama-3-8B fp8, batch 1, context 128", 0.78, None),
    ("decode/llama-3-8b/int8/1/128", "same, int8", None, None),
    ("decode/llama-3-8b/int4/1/128", "same, int4 in groups of 64", 0.65, None),
    ("decode/llama-3-8b/nf4/1/128", "same, NF4", None, None),
    ("decode/llama-3-8b/bf16/8/1024", "Llama-3-8B bf16, batch 8, context 1024", 0.75, 1.5),
    ("decode/llama-3-8b/fp8/8/1024", "same, fp8", 0.68, None),
    ("decode/llama-3-8b/int8/8/1024", "same, int8", None, None),
    ("decode/llama-3-8b/int4/8/1024", "same, int4", 0.48, None),
    ("decode/llama-3.2-1b/bf16/1/1024", "Llama-3.2-1B bf16, batch 1, context 1024", 0.78, None),
    ("decode/llama-3.2-1b/bf16/8/1024", "same, batch 8", 0.65, None),
    ("decode/qwen3-30b-a3b/bf16/1/1024", "Qwen3-30B-A3B bf16 (experts), batch 1, context 1024", None, None),
    ("decode/qwen3-30b-a3b/fp8/1/1024", "same, fp8", 0.48, None),
    ("decode/mixtral-8x7b/fp8/1/1024", "Mixtral-8x7B fp8, batch 1, context 1024", 0.80, None),
    ("decode/llama-3-8b/bf16/32/1024", "Llama-3-8B bf16, batch 32, context 1024", 0.75, 1.5),
    ("decode/llama-3-8b/bf16/64/1024", "same, batch 64", 0.75, 1.5),
    ("decode/llama-3-8b/bf16-fp8/64/1024", "same, KV cache in fp8", None, None),
    ("prefill/llama-3-8b/bf16/2048", "Llama-3-8B bf16, prompt of 2048", 0.65, None),
    ("prefill/llama-3-8b/bf16/8192", "same, prompt of 8192", 0.65, None),
    ("attention/causal/8192/32x128", "causal attention, 8192 tokens, 32 heads of 128", 0.60, None),
]
# "bf16   1 x  8192 of  8192 tokens, 32/32 heads of 128:     900.0 us  610.0 TFLOP/s, before it ..."
ATTENTION = re.compile(r"bf16 +1 x +(\d+) of +\1 tokens, +(\d+)/ *\2 heads of +(\d+): +([0-9.]+) us .*TFLOP/s.*")
# Columns of a token's products in one layer, layers, query columns: Llama-3-8B.
PRODUCTS, LAYERS, QUERIES, HEAD = 4096 * (6144 + 4096 + 3 * 14336), 32, 4096, 4096 * 128256


def flops_of(case):
    """Of prompts (the head for the last token alone) and causal attention, half of the square."""
    kind, *words = case.split("/")
    if kind == "attention":
        tokens, (heads, head) = int(words[1]), map(int, words[2].split("x"))
        return 4.0 * tokens * tokens * heads * head / 2
    if kind == "prefill":
        tokens = int(words[2])
        return LAYERS * (2.0 * PRODUCTS * tokens + 4.0 * tokens * tokens * QUERIES / 2) + 2.0 * HEAD
    return None


def read_results(text):
    """Case -> (ms or None, rate or None, share or None); the fastest of several."""
    found = {}
    for line in text.splitlines():
        if attention := ATTENTION.fullmatch(line):
            tokens, heads, head, us = attention.groups()
            line = f"RESULT attention/causal/{tokens}/{heads}x{head} {float(us) / 1e3} ms -"
        words = line.split()
        if len(words) != 5 or words[0] != "RESULT":
            continue
        case, value, unit, share = words[1], float(words[2]), words[3], words[4]
        share = None if share == "-" else float(share)
        flops = flops_of(case)
        if unit == "ms":
            entry = (value, flops / value * 1e-9 if flops else None, share)
        elif unit == "TFLOP/s" and flops:
            entry = (flops / value * 1e-9, value, share)
        else:
            entry = (None, value, share)
        before = found.get(case)
        if before is None or (entry[0] < before[0] if entry[0] else entry[1] > before[1]):
            found[case] = entry
    return found


def bold_unless(met, text):
    return text if met else f"**{text}**"


def row(case, label, share_asked, times_asked, results, torch, gemm):
    ms, tflops, share = results.get(case, (None, None, None))
    theirs = torch.get(case, {}).get("ms")
    rate, of = "-", ""
    if ms and case.startswith("decode/"):
        rate = f"{int(case.split('/')[3]) * 1e3 / ms:.0f} tok/s"
    elif tflops:
        rate = f"{tflops:.0f} TFLOP/s"
        ceiling = gemm
        if case.startswith("attention/"):
            ceiling, of = torch.get(case + "/cudnn", {}).get("tflops"), " of cuDNN"
        share = tflops / ceiling if ceiling else share
    times = theirs / ms if theirs and ms else None
    asked = [f"{100 * share_asked:.0f} %"] if share_asked else []
    asked += [f"{times_asked} times"] if times_asked else []
    return [label, f"{ms:.3f}" if ms else "-", rate,
            "-" if share is None else bold_unless(not share_asked or share >= share_asked, f"{100 * share:.1f} %{of}"),
            ", ".join(asked) or "-", f"{theirs:.3f}" if theirs else "-",
            "-" if times is None else bold_unless(not times_asked or times >= times_asked, f"{times:.2f}")]


def table(results_text, torch):
    results = read_results(results_text)
    theirs = torch.get("results", {})
    read = results.get("ceiling/read", (None, None, None))[1]
    peaks = [results["ceiling/gemm"][1]] if "ceiling/gemm" in results else []
    peaks += [theirs["ceiling/gemm"]["tflops"]] if "ceiling/gemm" in theirs else []
    gemm = max(peaks, default=None)
    lines = ["Ceilings of this call: " + ", ".join(
        ([f"reads {read:.3f} TB/s"] if read else []) + ([f"products 8192^3 {gemm:.0f} TFLOP/s"] if gemm else []))]
    if torch:
        lines.append(f"PyTorch {torch['torch']} on {torch['device']}")
    lines += ["", "| case | ms | rate | of the ceiling | asked for | PyTorch ms | times as fast |",
              "|---|---|---|---|---|---|---|"]
    for case, label, share, times in ROWS:
        if case in results or case in theirs:
            lines.append("| " + " | ".join(row(case, label, share, times, results, theirs, gemm)) + " |")
    return "\n".join(lines)


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        text = file.read()
    torch = {}
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as file:
            torch = json.load(file)
    print(table(text, torch))


if __name__ == "__main__":
    main()
