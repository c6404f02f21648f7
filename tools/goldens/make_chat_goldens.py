#!/usr/bin/env python3
"""Makes tests/data/chat/*.json: what Jinja says, set up as transformers sets it up for chat templates.

    python3 tools/goldens/make_chat_goldens.py          (python3-jinja2)

expressions.json: {variables, cases: [[template, output or null for an error], ...]}: values, each with
every filter, test, method and operator, and statements with every kind of white space control.
families.json: every *.jinja beside it with every conversation: [[template, conversation, output or null]].
"""
import copy
import datetime
import itertools
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).parents[2] / "tests/data/chat"
NOW = datetime.datetime(2024, 7, 26, 12)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what an assistant wrote; the text is the same."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("show"), [], [], body).set_lineno(line)

    def show(self, caller):
        return caller()


def environment():
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = NOW.strftime
    return made


ENVIRONMENT = environment()


def render(template, variables):
    try:
        # A copy: Jinja's indent changes a list that it is given.
        return ENVIRONMENT.from_string(template).render(**copy.deepcopy(variables))
    except Exception:
        return None


VARIABLES = {
    "s": " Hello, wörld\n", "empty": "", "word": "abc", "digits": "42", "lines": "a\n\n b\r\nc\n",
    "i": 7, "neg": -3, "zero": 0, "f": 2.5, "t": True, "no": False, "nil": None,
    "l": [3, 1, 2, 1], "names": ["b", "A", "a", "C"], "el": [], "mixed": [1, "a", None, True, 2.0],
    "d": {"b": 1, "a": "x", "C": None}, "ed": {}, "quote": "it's \"q\"\\\t\x01é🦙",
    "people": [{"name": "Bo", "age": 3, "in": {"x": 1}}, {"name": "al", "age": 1, "in": {"x": 2}}, {"name": "Cy"}],
    "nested": {"k": [1, {"z": "é", "y": [True, None]}], "n": 1.5},
}

FILTERS = """trim length count tojson tojson(indent=2) tojson(sort_keys=true) tojson(ensure_ascii=true)
join join(',') join(', ','name') join('-',attribute='age') replace('a','XY') replace('l','',1) replace('','.')
upper lower title capitalize first last default('D') default('D',true) d(1) list items|list dictsort
dictsort(reverse=true) dictsort(by='value') safe string int int(5) float float(1.5) indent indent(2) indent(2,true)
indent('>',blank=true) unique|list unique(true)|list reverse|list sort sort(reverse=true) sort(attribute='name')
sort(case_sensitive=true) min max sum sum(attribute='age') sum(start=10) map('upper')|list map(attribute='name')|list
map(attribute='age',default=0)|list map(attribute='in.x')|list map('trim')|join('|') map('replace','a','o')|list
select|list reject|list select('string')|list select('gt',1)|list select('==',1)|list reject('none')|list
selectattr('name')|list selectattr('age','defined')|list selectattr('name','equalto','Bo')|list
rejectattr('age')|list selectattr('age','in',[1])|list abs trim('ab') tojson(separators=(',',':')) map(attribute='name')|first
""".split()

TESTS = "defined undefined none string mapping iterable sequence boolean number integer float true false odd even callable".split()
TEST_ARGUMENTS = ["equalto 7", "eq 'abc'", "ne none", "in [1, 7, 'abc']", "divisibleby 2", "sameas true", "lt 3", "ge 2",
                  "not defined", "not string", "in 'xabcx'", "sameas none"]

METHODS = """strip() strip('a\\n') lstrip() rstrip() split() split(',') split('l',1) split(None,1) rsplit('l',1)
splitlines() startswith('a') startswith(('x','a')) endswith('c') replace('l','LL') replace('l','',1) upper() lower()
title() capitalize() find('c') find('zz') rfind('l') count('l') removeprefix('a') removesuffix('c') isdigit()
items()|list keys()|list values()|list get('a') get('zz') get('zz',5) index(1) count(1) join(['x','y'])""".split()

ACCESS = ["[0]", "[-1]", "[99]", "['a']", "['zz']", ".a", ".zz", ".zz.y", "[1:]", "[:2]", "[::-1]", "[-2:]", "[::2]",
          "[3:1:-1]", "[1:99]", "[-99:2]", ".name", "[0].name", "[0]['age']", "['k'][1].z", ".k[1]['y'][0]", "['items']"]

SCALARS = ["i", "neg", "zero", "f", "t", "nil", "word", "l", "d", "missing", "el"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]

STATEMENTS = r"""
{{ 1 if t else 2 }}{{ 1 if no else 2 }}[{{ 1 if no }}]
{{ 'a' 'b' ~ 1 + 2 }} {{ 2 + 3 * 4 - 1 }} {{ (2 + 3) * 4 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ -i|abs }} {{ 7 // 2 ~ 7 % 3 }}
{{ not t or no and t }} {{ not (t or no) }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }}
{{ [1, 'a', none, 2.50, true] }} {{ (1,) }} {{ () }} {{ {'a': 1, 'b': [1]} }} {{ {'a': 1}.a }} {{ {'a': 1}['a'] }}
{{ "a\nb\t\\ \x41 é \'q\' \q" }} {{ 'it\'s' }} {{ 1_000 }} {{ 1.5e3 }} {{ 1e-7 }} {{ 12345678901234567.0 }} {{ 0.1 + 0.2 }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}:{{ x }},{{ loop.length }}{% else %}none{% endfor %}
{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}
{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}
{% for c in 'héy' %}{{ c }}.{% endfor %}{% for x in missing %}a{% else %}b{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}
{% for x in [[1, 2], [3, 4]] %}{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}
{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{{ b }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for i in range(3) %}{{ i }}{% endfor %}{{ range(2, 8, 3)|list }}{{ range(3, 0, -1)|list }}{{ i }}
{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }},{% endfor %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}
{% set x %}<{{ i }}>{% endset %}{{ x|length }}{{ x }}
{% if no %}a{% elif i == 7 %}b{% else %}c{% endif %}{% if no %}a{% elif no %}b{% else %}c{% endif %}{% if l %}y{% endif %}
{% if t %}{% set z = 5 %}{% endif %}{{ z }}{% if no %}{% set w = 5 %}{% endif %}[{{ w }}]
{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}-{{ i }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m() }} {{ m(1,2,3)|upper }}
{% macro m(a) %}{% if a > 0 %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(4) }}
{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}
{% set x = 'outer' %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 'later' %}{{ m() }}
{% generation %}a{{ i }}{% endgeneration %}b
{{ raise_exception('no') }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%A, %B %-d') }}
{{ missing }}[{{ missing.x }}]
{{ missing + 1 }}
{{ missing() }}
{{ d.items }}{{ 'x' if d.zz is defined else 'y' }}{{ nested.k[1].y }}
{{ s.strip().split(', ')[-1].upper() }} {{ (s|trim ~ '!')|length }} {{ s.strip()[0] }} {{ s[1:3] }} {{ s[::-1] }}
{{ l|length > 2 and l[0] == 3 }} {{ l|length is odd }} {{ l is iterable and l is not mapping }} {{ 3 in l and 9 not in l }}
{{ 'a' in d }} {{ 'zz' in d }} {{ 'a' in 'abc' }} {{ 1 in el }} {{ nil in mixed }} {{ 'b' not in d }}
{{ namespace(a=1).a }} {{ dict(a=1, b=2) }} {{ dict(a=1)|tojson }}
{{ nested|tojson }} {{ nested|tojson(indent=4) }} {{ quote|tojson }} {{ [quote] }} {{ [quote, "'", '"'] }} {{ el|tojson(indent=2) }}
{{ people|map(attribute='name')|join(', ') }} {{ people|selectattr('age', 'defined')|map(attribute='age')|sum }}
{{ (people|selectattr('name', 'equalto', 'Bo')|list)[0].age }} {{ people|rejectattr('age')|map(attribute='name')|list }}
{{ i is divisibleby 7 }} {{ i is divisibleby(7) and t }} {{ nil is none or no }} {{ word is in ['abc'] }}
x {{ '{{' }} {{ '%}' }} { { } } {{ {'a': {'b': 1}}['a']['b'] }}{# comment #}a
a {%- if t -%} b {%- endif %} c
{{ unclosed
{% if t %}
{% endfor %}
{{ 1 2 }}
{{ nope|unknown }}
{{ x is unknown }}
{% unknown %}
{{ 'open }}
{{ (1, 2 }}
""".strip("\n").split("\n")

# Cases of several lines.
BLOCKS = ["""{#- x -#} b {#  multi
line #}
c""", """  {% if t %}
  kept
    {%- if t %} a {% endif -%}
  b
  {% endif %}
end
""", """a
{%+ if t %}
 b
    {%+ endif %}
c
  {% set x = 1 +%}
  d {{- i -}}
  e

""", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n", """{%- for m in people -%}
    {%- if m.age is defined and m.age is not none -%}
        {{- m.name + ': ' ~ m.age -}}
    {%- else -%}
        {{- m['name'] | upper -}}
    {%- endif -%}
    {{- ';' if not loop.last -}}
{%- endfor -%}
""", """{%- set ns = namespace(found=false, at=l|length - 1) %}
{%- for x in l[::-1] %}
    {%- set index = (l|length - 1) - loop.index0 %}
    {%- if not ns.found and x == 1 %}
        {%- set ns.found = true %}
        {%- set ns.at = index %}
    {%- endif %}
{%- endfor %}
{{- ns.at }}
""", "{{ 1 +\n   2 }}\r\n{% if t %}\r\nx\r{% endif %}\n\n", "a\n\t {# c #}\nb {# c #}\nc\n", "\n\n{{ i }}\n\n",
          "{{ i }}  {% if t %}  x  {% endif %}  y", "{{- i -}}  \n {% if t -%} \n x \n {%- endif %}\n y",
          "{% if t %}\n\n a{% endif %}\n", "   {{ i }}\n   {%- set a = 1 %}\n   {{ a }}", "{%- if t +%}\n x{% endif %}"]


def expressions():
    for name, suffix in itertools.product([*VARIABLES, "missing"], FILTERS):
        yield "{{ " + name + "|" + suffix + " }}"
    for name, test in itertools.product([*VARIABLES, "missing"], TESTS + TEST_ARGUMENTS):
        yield "{{ " + name + " is " + test + " }}"
    for name, method in itertools.product(["s", "word", "lines", "quote", "empty", "d", "l", "digits"], METHODS):
        yield "{{ " + name + "." + method + " }}"
    for name, access in itertools.product(["s", "word", "l", "el", "d", "people", "nested", "quote", "i", "missing"], ACCESS):
        yield "{{ " + name + access + " }}"
    for left, symbol, right in itertools.product(SCALARS, OPERATORS, SCALARS):
        # Ridge has neither printf-style formatting nor complex numbers.
        if (left, symbol) not in (("word", "%"), ("neg", "**")):
            yield "{{ " + left + " " + symbol + " " + right + " }}"
    yield from STATEMENTS
    yield from BLOCKS


def printable(text):
    """Whether the output is a value's, not a Python object's address or type."""
    return text is None or not any(mark in text for mark in ("<built-in", "<generator", " object at 0x", "<function", "<bound"))


def write(name, value, rows):
    head = json.dumps(value, ensure_ascii=False)[:-1] + (", " if value else "")
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (FOLDER / name).write_text(head + '"cases": [\n' + body + "\n]}\n")


def main():
    cases = [[template, render(template, VARIABLES)] for template in dict.fromkeys(expressions())]
    cases = [case for case in cases if printable(case[1])]
    write("expressions.json", {"variables": VARIABLES}, cases)

    conversations = json.loads((FOLDER / "conversations.json").read_text())
    rows = []
    for path in sorted(FOLDER.glob("*.jinja")):
        for name, request in conversations.items():
            variables = dict(request, bos_token="<s>", eos_token="</s>", documents=None)
            variables.setdefault("tools", None)
            rows.append([path.stem, name, render(path.read_text(), variables)])
    write("families.json", {}, rows)


main()
