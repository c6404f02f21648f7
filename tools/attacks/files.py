"""Hostile model files and observations: bounded time and memory, one line, exit 2."""
import json
import os
import tempfile

from . import kinds, programs
from .trial import MIB, attack


def tokenizer(**more):
    vocabulary = {chr(97 + i): i for i in range(26)}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}, **more}


def added(identity, content):
    return {"id": identity, "content": content, "special": False, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False}


def tokenizers():
    """(what, tokenizer.json, text)."""
    def chain(pattern, content, count):
        steps = [{"type": "Replace", "pattern": {"String": pattern}, "content": content}] * count
        return {"type": "Sequence", "normalizers": steps}

    yield "40 Replace", tokenizer(normalizer=chain("a", "aa", 40)), "a"
    yield "4 Replace of 200 bytes", tokenizer(normalizer=chain("a", "a" * 200, 4)), "a" * 1000
    prefix = "a" * MIB
    tokens = [added(100 + i, prefix + str(i)) for i in range(4)]
    yield "added tokens of 1 MB that begin alike", tokenizer(added_tokens=tokens), "a" * (3 * MIB)
    tokens = [added(100 + i, "a" * (i + 1)) for i in range(3000)]
    yield "3,000 added tokens that begin alike", tokenizer(added_tokens=tokens), ("a" * 2990 + "b") * 700
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    yield "a pattern that backtracks", tokenizer(pre_tokenizer=split), "a" * 5000 + "b"
    split = {"type": "Split", "pattern": {"Regex": "(.*?,){20}z"}, "behavior": "Isolated", "invert": False}
    yield "a pattern that looks far", tokenizer(pre_tokenizer=split), "a," * 100000
    merges = ["a a"] + ["a" * 2**i + " " + "a" * 2**i for i in range(1, 12)]
    vocabulary = {"a" * 2**i: i for i in range(13)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    yield "one word of 3 MB", tokenizer(model=model), "a" * (3 * MIB)
    nested = '{"type":"Sequence","normalizers":[' * 2000 + "]}" * 2000
    deep = json.dumps(tokenizer(normalizer="HERE")).replace('"HERE"', nested)
    yield "2,000 nested sequences", deep, "a"


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 2, "vocab_size": 26, "max_position_embeddings": 128,
          "rms_norm_eps": 1e-5, "torch_dtype": "float32"}


def doubling(first, next_):
    """A template whose one value grows sixty times."""
    return ("{% set ns = namespace(t=" + first + ") %}{% for a in range(60) %}{% set ns.t = " + next_
            + " %}{% endfor %}")


TEMPLATES = {
    "nested loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "text that doubles": doubling("'x'", "ns.t ~ ns.t"),
    "a list that doubles": doubling("[1]", "ns.t + ns.t"),
    "a product of text": "{{ 'x' * 4000000000 }}",
    "a long range": "{{ range(4000000000) | list | length }}",
    "a macro that calls itself": "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "macros that double": "{% macro a0() %}x{% endmacro %}" + "".join(
        f"{{% macro a{i + 1}() %}}{{{{ a{i}() }}}}{{{{ a{i}() }}}}{{% endmacro %}}" for i in range(40)) + "{{ a40() }}",
    "deep brackets": "{{ " + "(" * 50000 + "1" + ")" * 50000 + " }}",
    "deep blocks": "{% if 1 %}" * 20000 + "{% endif %}" * 20000,
    "replace that doubles": doubling("'x'", "ns.t.replace('x', 'xx')"),
    "a wide indent": "{{ ('a\n' * 100000) | indent(100000) }}",
    "join that triples": doubling("'x'", "[ns.t, ns.t] | join(ns.t)"),
}


def write(folder, name, content):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def judge(trial, what, ended, limit, wanted):
    """Exit 0 or 2, in time, and with not more than a few lines where it is 2."""
    lines = ended.output.count("\n")
    fine = ended.status in wanted and (ended.status != 2 or lines <= 3)
    if not fine:
        trial.fail(f"{what}: status {ended.status} after {ended.seconds:.1f} s, {lines} lines, "
                   f"{ended.output[-160:]!r}")
    return fine, ended.seconds


@attack("files")
def files(trial):
    """Tokenizers, chat templates, pipes and traces that would take all time or all memory are given up
    within 10 s and 4 GiB of address space."""
    limit = 10 * trial.slow
    results = []
    with tempfile.TemporaryDirectory() as top:
        for number, (what, content, text) in enumerate(tokenizers()):
            path = write(f"{top}/t{number}", "tokenizer.json", content)
            text_path = write(f"{top}/t{number}", "text", text)
            with open(text_path, "rb") as source:
                ended = programs.call(trial, "tokenize", "--model", path, "-", limit_s=limit,
                                      standard_input=source)
            results.append((what, *judge(trial, what, ended, limit, (0, 2))))
        for number, (what, template) in enumerate(TEMPLATES.items()):
            folder = f"{top}/c{number}"
            write(folder, "config.json", CONFIG)
            write(folder, "tokenizer.json", tokenizer())
            write(folder, "tokenizer_config.json", {"chat_template": template})
            ended = programs.call(trial, "run", folder, "a", "--chat", "--weights", "random:1",
                                  "-n", "1", "-c", "64", limit_s=limit)
            results.append((f"template: {what}", *judge(trial, f"template: {what}", ended, limit, (0, 2))))
        pipe = f"{top}/pipe"
        os.mkfifo(pipe)
        for command in ("model", "explain"):
            what = f"ridge {command} PIPE"
            ended = programs.call(trial, command, pipe, limit_s=limit)
            results.append((what, *judge(trial, what, ended, limit, (2,))))
        what = "SQLite without an index"
        ended = programs.call(trial, "explain", kinds.sqlite(f"{top}/trace.sqlite", 30000), limit_s=limit)
        results.append((what, *judge(trial, what, ended, 3 * trial.slow, (0, 2))))
    trial.figures["seconds"] = {what: seconds for what, _, seconds in results}
    trial.count("given up or done in time", sum(fine for _, fine, _ in results), len(results))
    worst = max(results, key=lambda result: result[2])
    trial.time(f"longest, {worst[0]}", worst[2], 10.0)
