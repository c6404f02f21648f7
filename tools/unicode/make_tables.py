#!/usr/bin/env python3
"""Writes src/text/tokenizer/unicode_tables.inc from Python's unicodedata.

    tools/unicode/make_tables.py > src/text/tokenizer/unicode_tables.inc

Text, because it diffs and needs no reader beyond splitting at spaces. Code points are hexadecimal; the
first of each entry is the distance from the entry before it.
  canonical      c=a or c=a,b   one step of the canonical decomposition; c!=a,b is never composed again
  compatibility  c=a,b,...      the full NFKD of a character that NFD leaves or changes otherwise
  classes        c+n=k          n code points from c have canonical combining class k
  lower          c+n=d          n code points from c, one or two apart (c*n=d), have lower case at distance d
"""
import sys
import unicodedata as u

LAST = 0x10FFFF
HANGUL = range(0xAC00, 0xAC00 + 11172)  # by arithmetic


def hexes(text):
    return ",".join("%x" % ord(c) for c in text)


def canonical():
    for c in range(LAST + 1):
        step = u.decomposition(chr(c))
        if not step or step.startswith("<") or c in HANGUL:
            continue
        again = u.normalize("NFC", chr(c)) == chr(c)
        yield c, ("=" if again else "!=") + ",".join("%x" % int(x, 16) for x in step.split())


def compatibility():
    for c in range(LAST + 1):
        if 0xD800 <= c <= 0xDFFF or c in HANGUL:
            continue
        full = u.normalize("NFKD", chr(c))
        if full != u.normalize("NFD", chr(c)):
            yield c, "=" + hexes(full)


def classes():
    start, length, kind = 0, 0, 0
    for c in range(LAST + 2):
        now = u.combining(chr(c)) if c <= LAST else 0
        if now == kind and kind:
            length += 1
            continue
        if kind:
            yield start, "+%x=%d" % (length, kind)
        start, length, kind = c, 1, now


def lower():
    pairs = {}
    for c in range(LAST + 1):
        if 0xD800 <= c <= 0xDFFF:
            continue
        low = chr(c).lower()
        if len(low) == 1 and low != chr(c):
            pairs[c] = ord(low) - c
    done = set()
    for c in sorted(pairs):
        if c in done:
            continue
        runs = []
        for stride in (1, 2):
            n = 1
            while pairs.get(c + n * stride) == pairs[c] and c + n * stride not in done:
                n += 1
            runs.append((n, stride))
        n, stride = max(runs)
        done.update(c + i * stride for i in range(n))
        yield c, "%s%x=%d" % ("+" if stride == 1 else "*", n, pairs[c])


def table(name, entries):
    print("\nconstexpr const char* k%s =" % name)
    last, line = 0, ""
    for c, rest in entries:
        entry = "%x%s " % (c - last, rest)
        last = c
        if len(line) + len(entry) > 90:
            print('    "%s"' % line)
            line = ""
        line += entry
    print('    "%s";' % line)


print("// Made by tools/unicode/make_tables.py from Unicode %s; do not edit." % u.unidata_version)
table("Canonical", canonical())
table("Compatibility", compatibility())
table("Classes", classes())
table("Lower", lower())
