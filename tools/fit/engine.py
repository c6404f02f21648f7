#!/usr/bin/env python3
"""How far the stack of Ridge's CUDA engine is from steps of `ridge bench`, and a fit of it to them.

    tools/fit/engine.py RIDGE STACK BENCH_JSON... [-o FITTED]

RIDGE: the program. STACK: the stack's file (atlas/stacks/ridge-cuda.json). BENCH_JSON: outputs of
`ridge bench --device cuda --json`. Prints a row a step: measured, predicted, error; the same after a
fit. FITTED: where the fitted stack goes.

The fit: a step's expected time (docs/model.md) is linear in 1 / share and in the ramps, once the slower
of compute and memory is known for each operator. So least squares of the relative errors, with shares
at most 1, ramps at least 0, and a weak pull to the numbers that are there, which decides what the steps
do not tell apart.
"""
import argparse
import json
import statistics
import subprocess

# What is fitted: in the sets of small steps, in the last one, and for all of them.
SMALL = [("matmul", "memory"), ("matmul", "ramp"), ("attention_decode", "memory"), ("attention_decode", "ramp")]
LARGE = [("matmul", "compute"), ("matmul", "ramp"), ("attention_prefill", "compute"), ("attention_prefill", "ramp"),
         ("elementwise", "memory")]
ALL = [("sample", "memory")]
PULL = 0.01        # of a parameter that moves by half, or a ramp by RAMP: as an error of so much
RAMP = 5e-6
LEAST_SHARE = 0.002
SWEEPS = 3000


def predicted_operators(ridge, machine, model, weights, row):
    """Operators of the step as (kind, count, seconds of compute and of memory at full rate)."""
    prompt = row["test"] == "prompt"
    command = [ridge, "predict", "-m", model, "-M", machine, "--stack", "ideal", "--weights", weights, "--json"]
    command += ["-p", str(row["tokens"])] if prompt else ["-b", str(row["batch"]), "-c", str(row["context"])]
    found = []
    for op in json.loads(subprocess.check_output(command))["ops"]:
        if (op["phase"] == "prefill") == prompt:
            by_compute = op["wall"] == "compute"
            found.append((op["kind"], op["count"], op["roof_s"] if by_compute else 0, 0 if by_compute else op["roof_s"]))
    return found


def set_of(stack, tokens):
    """The index of the efficiencies that a step of so many tokens has; the last: `kinds`."""
    sets = stack.get("steps", [])
    return next((i for i, s in enumerate(sets) if tokens <= s["tokens"]), len(sets))


def efficiency(stack, index, kind):
    sets = stack.get("steps", [])
    own = sets[index]["kinds"] if index < len(sets) else {}
    return own.get(kind, stack["kinds"][kind])


class Fit:
    """Parameters by (set or None, kind, field) as factors on full-rate times, and ramps in seconds."""

    def __init__(self, stack, rows):
        self.stack, self.rows, self.values = stack, [], {}
        for row in rows:
            terms, constant = {("step",): 1.0}, 0.0
            self.values[("step",)] = stack["host"]["step"]
            index = set_of(stack, row["tokens"])
            last = index == len(stack.get("steps", []))
            for kind, count, compute, memory in row["operators"]:
                e = efficiency(stack, index, kind)
                field = "compute" if compute > 0 else "memory"
                for name, amount, value in ((field, compute + memory, 1 / e[field]), ("ramp", count, e["ramp"])):
                    if (kind, name) in ALL:
                        key = (None, kind, name)
                    elif (kind, name) in (LARGE if last else SMALL):
                        key = (index, kind, name)
                    else:
                        constant += amount * value
                        continue
                    terms[key] = terms.get(key, 0) + amount
                    self.values[key] = value
            self.rows.append((row["seconds"], constant, terms))

    def times(self):
        return [constant + sum(a * self.values[k] for k, a in terms.items()) for _, constant, terms in self.rows]

    def run(self):
        start = dict(self.values)
        errors = [t / row[0] - 1 for t, row in zip(self.times(), self.rows)]
        columns = {k: [(i, terms[k] / measured) for i, (measured, _, terms) in enumerate(self.rows) if k in terms]
                   for k in start}
        for _ in range(SWEEPS):
            for key, column in columns.items():
                timed = key == ("step",) or key[-1] == "ramp"
                scale = PULL / (RAMP if timed else 0.5 * start[key])
                down = sum(a * errors[i] for i, a in column) + scale * scale * (self.values[key] - start[key])
                value = self.values[key] - down / (sum(a * a for _, a in column) + scale * scale)
                value = max(0.0, value) if timed else min(max(1.0, value), 1 / LEAST_SHARE)
                moved = value - self.values[key]
                for i, a in column:
                    errors[i] += a * moved
                self.values[key] = value

    def fitted_stack(self):
        stack = json.loads(json.dumps(self.stack))
        stack["host"]["step"] = float(f"{self.values[('step',)]:.2g}")
        for key, value in self.values.items():
            if key == ("step",):
                continue
            index, kind, field = key
            shown = float(f"{value:.2g}") if field == "ramp" else float(f"{1 / value:.3g}")
            if index is None or index == len(stack.get("steps", [])):
                stack["kinds"][kind][field] = shown
            else:
                own = stack["steps"][index]["kinds"]
                own.setdefault(kind, dict(stack["kinds"][kind]))[field] = shown
        return stack


def stack_text(value, indent=""):
    """As the atlas has it: what holds no further objects on one line."""
    inner = indent + "  "
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(item, (dict, list)) for item in items):
        return json.dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + stack_text(item, inner) for item in value) + f"\n{indent}]"
    return "{\n" + ",\n".join(f"{inner}{json.dumps(key)}: {stack_text(item, inner)}" for key, item in value.items()) + f"\n{indent}}}"


def summary(name, rows, times):
    for test, aim in (("generate", 5), ("prompt", 10)):
        errors = [abs(t / r["seconds"] - 1) * 100 for t, r in zip(times, rows) if r["test"] == test]
        if errors:
            inside = sum(e <= aim for e in errors)
            print(f"{name}, {test}: {len(errors)} steps, error median {statistics.median(errors):.1f} %, "
                  f"worst {max(errors):.1f} %, {inside} within {aim} %")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ridge")
    parser.add_argument("stack")
    parser.add_argument("bench", nargs="+")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    with open(options.stack) as file:
        stack = json.load(file)
    rows = []
    for name in options.bench:
        try:
            with open(name) as file:
                bench = json.load(file)
        except ValueError:
            print(f"{name}: no result")
            continue
        model = bench["model"].split(",")[0]
        weights = bench["device"].split(", ")[-1].split()[0]
        for row in bench["rows"]:
            row["name"] = f"{model} {weights}"
            row["operators"] = predicted_operators(options.ridge, bench["machine"], model, weights, row)
            rows.append(row)
    if not rows:
        raise SystemExit("nothing was measured")
    fit = Fit(stack, rows)
    before = [row["expected_s"] for row in rows]
    fit.run()
    after = fit.times()
    print("| model | step | measured, ms | predicted | error | after a fit |")
    print("|---|---|---|---|---|---|")
    for row, old, new in zip(rows, before, after):
        step = (f"prompt {row['tokens']}" if row["test"] == "prompt"
                else f"batch {row['batch']}, context {row['context']}")
        t = row["seconds"]
        print(f"| {row['name']} | {step} | {t * 1e3:.3f} | {old * 1e3:.3f} | {(old / t - 1) * 100:+.1f} % "
              f"| {(new / t - 1) * 100:+.1f} % |")
    summary("predicted", rows, before)
    summary("after a fit", rows, after)
    if options.output:
        with open(options.output, "w") as file:
            file.write(stack_text(fit.fitted_stack()) + "\n")


if __name__ == "__main__":
    main()
