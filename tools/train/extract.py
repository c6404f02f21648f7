"""Readers that turn one file of a Debian package into paragraphs, and the test that a paragraph is English prose.

A paragraph is a string without line breaks; a heading is a paragraph that starts with HEADING.
"""
import bz2, gzip, html, re, struct, zlib

HEADING = "\x01"

# ---------------------------------------------------------------- characters

_ASCII = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u2032": "'", "`": "'", "\u00b4": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
    "\u2013": "-", "\u2014": " - ", "\u2010": "-", "\u2011": "-", "\u2212": "-", "\u2026": "...", "\u00a0": " ",
    "\u00ad": "", "\u200b": "", "\ufeff": "", "\u00b6": "", "\u2022": "", "\ufb01": "fi", "\ufb02": "fl",
    "\u2192": ">", "\u2003": " ", "\u2002": " ", "\u2009": " ", "\u202f": " ", "\u21d2": ">", "\x01": "", "\f": " "})


def plain(text):
    """One line, ASCII quotes and dashes: a 4096-token vocabulary has none to spare for typography."""
    text = text.translate(_ASCII)
    text = re.sub(r"''(?=\S)|(?<=\S)''", '"', text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r" ([,.;:!?)])(?= |$)", r"\1", text)


# ---------------------------------------------------------------- prose test

_STOP = frozenset("""the of and to a in is that it for as with be are this on by or an not from you can was at which have
if will your has but they he his we all their its one when there may been more other used i who would these then do so no
also only any into such than each her she him my me them what were had out up about must should could how because where
our those some between after before very just use does made being both own while over""".split())
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_SYMBOL = re.compile(r"[{}<>|\\=_/@#$%^*~\[\]+]")
_BOILER = re.compile(
    r"copyright \(?c|©|all rights reserved|permission is (hereby )?granted|without warranty|free software foundation"
    r"|GNU (Lesser )?General Public|free documentation licen[sc]e|creative commons|click here|table of contents"
    r"|redistribut|this manual page was|generated (by|on|with|at)|enable javascript|last (updated|modified)"
    r"|https?://|www\.|javadoc|doxygen|\bbug reports? to\b|Licensed under|merchantab|bugs\.kde|@\w+\.\w+", re.I)


def is_prose(p, least=60):
    if not least <= len(p) <= 6000 or p[-1] not in ".!?:\"')" or not (p[0].isupper() or p[0] in "\"'("):
        return False
    words = _WORD.findall(p)
    if len(words) < 9:
        return False
    if sum(c.isalpha() or c == " " for c in p) < 0.92 * len(p) or len(_SYMBOL.findall(p)) > 0.008 * len(p):
        return False
    if sum(not c.isascii() for c in p) > 0.01 * len(p) or sum(c.isdigit() for c in p) > 0.03 * len(p):
        return False
    if sum(w.lower() in _STOP for w in words) < 0.28 * len(words):
        return False
    if max(map(len, words)) > 24 or sum(map(len, words)) > 6.6 * len(words):
        return False
    if sum(w[0].isupper() for w in words) > 0.35 * len(words):
        return False
    if sum(len(w) > 2 and not w[1:].islower() and not "'" in w and not "-" in w for w in words) > 0.06 * len(words):
        return False  # CamelCase, CONSTANTS
    if p.count(": ") + p.count(" - ") > 3 + len(p) // 300:
        return False  # a list run together
    return not _BOILER.search(p)


def is_heading(h):
    return 4 <= len(h) <= 80 and h[0].isupper() and len(_WORD.findall(h)) >= 1 and not _SYMBOL.search(h) \
        and all(c.isascii() for c in h) and sum(c.isalpha() or c == " " for c in h) > 0.9 * len(h) \
        and not re.match(r"(table of contents|contents|index|see also|navigation|name|synopsis|copyright|license)", h, re.I)


def keep(paragraphs, least=60):
    """The prose of a document, each heading only where prose follows it."""
    out, heading = [], None
    for p in paragraphs:
        if p.startswith(HEADING):
            h = re.sub(r"^(chapter|appendix|section)?\s*[\dA-Z]{0,2}(\.\d+)*[.:)]?\s+(?=[A-Z])", "", plain(p), flags=re.I).strip()
            heading = h if is_heading(h) else None
        else:
            p = plain(p)
            if is_prose(p, least):
                if heading:
                    out.append(heading)
                heading = None
                out.append(p)
    return out


# ---------------------------------------------------------------- markup

_DROP = re.compile(r"<!--.*?-->|<(script|style|pre|head|nav|header|footer|select|form|math|svg|button|screen|programlisting"
                   r"|synopsis|cmdsynopsis|literallayout|mediaobject|screenshot|bookinfo|articleinfo|info|indexterm|refmeta|dt|code-block"
                   r"|sup|footnote|thead|caption|cite)\b[^>]*>.*?</\1\s*>", re.S | re.I)
_HEAD = re.compile(r"<(h[1-6]|title)\b[^>]*>(.*?)</\1\s*>", re.S | re.I)
_BLOCK = re.compile(r"</?(p|div|li|ul|ol|dl|dd|dt|td|th|tr|table|blockquote|section|article|body|main|hr|para|simpara|formalpara"
                    r"|listitem|entry|row|item|note|tip|warning|important|caution|varlistentry|itemizedlist|orderedlist|sect[1-5]"
                    r"|chapter|term|question|answer|step|desc|figure|page|steps|list|description)\b[^>]*>", re.I)
_TAG = re.compile(r"<[^>]*>")


def markup(text):
    if re.search(r'content="(Doxygen|Javadoc|javadoc|gtk-doc)|Generated by javadoc|class="rustdoc|generator" content="rustdoc|<frameset', text[:3000]):
        return []
    text = _DROP.sub(" ", text)
    text = re.sub(r"<br\b[^>]*>\s*<br\b[^>]*>", "\n\n", text, flags=re.I)
    text = re.sub(r"</(gui\w+|keycap)>\s*<(gui\w+|keycap)\b[^>]*>", " > ", text)
    text = _HEAD.sub(lambda m: "\x02\x01" + _TAG.sub("", m[2]) + "\x02", text)
    text = _BLOCK.sub("\x02", text)
    text = html.unescape(_TAG.sub("", text))
    text = re.sub(r"&([A-Za-z]+);", lambda m: m[1].capitalize(), text)  # DocBook entities such as &kate;
    return [p.strip() for p in text.split("\x02") if p.strip()]


def lines_to_paragraphs(text, code_indent=5):
    """Hard-wrapped text: blank lines separate, deep indentation is a listing."""
    for block in re.split(r"\n[ \t]*\n", text.replace("\r", "")):
        lines = [l for l in block.split("\n") if l.strip()]
        if not lines:
            continue
        indent = min(len(l) - len(l.lstrip()) for l in lines[-1:] + lines[1:2])
        if indent >= code_indent or re.match(r"\s*([-=*#~+|]{3,}|[*] \w.*::)", lines[0]):
            continue
        if len(lines) == 2 and re.match(r"^\s*([-=*~^])\1{2,}$", lines[1]):
            yield HEADING + lines[0].strip()
        elif len(lines) == 1 and re.match(r"#+ ", lines[0]):
            yield HEADING + lines[0].lstrip("# ")
        else:
            text = re.sub(r"-\n\s*(?=[a-z])", "-", "\n".join(lines))
            yield re.sub(r"^\s*([-*o+]|\d+[.)])\s+", "", text)


def info(text):
    text = re.sub(r"\x1f\nFile: [^\n]*\n", "\n", text)
    text = re.sub(r"\n\* [^\n]*::[^\n]*", "", text)
    text = re.sub(r"\*[Nn]ote\s+([^:.]*)::?(\s+\w+(?=\.))?", r"\1", text)
    return lines_to_paragraphs(text.replace("\x1f", "\n"))


def markdown(text):
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return lines_to_paragraphs(re.sub(r"\*\*|(?<=\s)[*_](?=\w)|(?<=\w)[*_](?=[\s.,])|`", "", text), 4)


def pod(text):
    text = re.sub(r"(?ms)^=begin .*?^=end [^\n]*", "", text)
    for _ in range(3):
        text = re.sub(r"[BIFCSX]<<* ?([^<>]*?) ?>>*", r"\1", text)
        text = re.sub(r"L<([^<>|]*)\|?[^<>]*>", r"\1", text)
    text = re.sub(r"E<(\w+)>", lambda m: {"lt": "<", "gt": ">"}.get(m[1], ""), text)
    for block in re.split(r"\n\s*\n", text):
        if re.match(r"=head", block):
            yield HEADING + re.sub(r"^=head\d\s*", "", block).capitalize()
        elif block[:1] not in " \t=":
            yield block


def man(text):
    text = re.sub(r"(?ms)^\.(nf|EX|TS|RS 4\n\.nf)\b.*?^\.(fi|EE|TE)\b", ".PP", text)
    out = []
    for line in text.split("\n"):
        m = re.match(r"[.']\s*(\w*)\s*(.*)", line)
        if not m:
            out.append(line)
        elif m[1] in ("B", "I", "SM", "BR", "IR", "RB", "RI", "BI", "IB"):
            args = re.findall(r'"([^"]*)"|(\S+)', m[2])
            out.append(("" if len(m[1]) == 2 and m[1] != "SM" else " ").join(a or b for a, b in args))
        elif m[1] in ("SH", "SS"):
            out.append("\n\n" + HEADING + m[2].strip('"').capitalize() + "\n\n")
        else:
            out.append("\n")
    text = re.sub(r"\\f(\(..|\[.*?\]|.)|\\s[-+]?\d|\\&|\\c|\\\||\\\^|\\/", "", "\n".join(out))
    text = re.sub(r"\\\(aq|\\\[aq\]", "'", text).replace("\\-", "-").replace("\\ ", " ").replace("\\(em", " - ").replace("\\e", "\\")
    text = re.sub(r"\\\(..|\\\*\(..|\\\[\w+\]|\\\*.", "", text)
    return re.split(r"\n\s*\n", text)


# ---------------------------------------------------------------- novels, scripture, dictionaries, games

def rdb(data):
    """An R data base: zlib records of XDR-serialised character vectors; here the lines of a novel."""
    lines = []
    for m in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
        try:
            raw = zlib.decompressobj().decompress(data[m.start():])
        except zlib.error:
            continue
        at, found = 0, []
        for c in re.finditer(rb"\x00[\x00-\x04]\x00\x09(....)", raw, re.S):
            n = struct.unpack(">i", c[1])[0]
            if c.start() >= at and 0 <= n < 2000:
                found.append(raw[c.end():c.end() + n].decode("utf-8", "replace"))
                at = c.end() + n
        if len(found) > 1000:
            lines += found + [""]
    return re.split(r"\n\n+", "\n".join(lines).replace("_", ""))


def sword(data, index):
    """A SWORD zText/zCom module: zlib blocks listed in the .bzs index as (offset, size, length)."""
    for off, size, _ in struct.iter_unpack("<III", index[:len(index) // 12 * 12]):
        try:
            text = zlib.decompress(data[off:off + size]).decode("utf-8", "replace")
        except zlib.error:
            continue
        text = re.sub(r"<RF>.*?<Rf>|<note\b.*?</note>|<title\b.*?</title>", "", text, flags=re.S)
        text = re.sub(r"<(CM|p|br|/p|/div|div|lb|P)\b[^>]*>|¶", "\n\n", text)
        text = re.sub(r"<[^>]*>", " ", text)
        for block in re.split(r"\n\s*\n", html.unescape(text)):
            block = re.sub(r"\s+", " ", block).strip()
            while len(block) > 1500:  # verses run on: cut at a sentence
                cut = block.rfind(". ", 400, 1200) + 1
                if cut <= 0:
                    break
                yield block[:cut]
                block = block[cut:].strip()
            yield block


def dictionary(text):
    """dictd entries: the headword starts a line, the definition is indented."""
    for entry in re.split(r"\n(?=\S)", text):
        entry = re.sub(r"\[[^\]]*\]|\\[^\\\n]*\\|[{}]", "", entry)
        head, _, body = entry.partition("\n")
        for block in re.split(r"\n\s*\n", body):
            block = re.sub(r"^\s*(\d+\.|\([a-z]\))\s*(\([A-Z][\w. &]*\)\s*)?", "", block)
            yield block.strip()


def stories(text):
    """Game data: long quoted strings in file order."""
    text = re.sub(r"(?m)^\s*(//|#|--(?!\[))[^\n]*", "", text)
    for m in re.finditer(r"`([^`]*)`|'''(.+?)'''|\[\[(.*?)\]\]|\"((?:[^\"\\]|\\.|\"\")*)\"|<description>(.*?)</description>"
                         r"|(?m:^desc:(.*))", text, re.S):
        s = next((g for g in m.groups() if g), "")
        if len(s) < 40 or re.search(r"^\s*\w+\s*=", s, re.M):
            continue
        s = s.replace('""', '"').replace('\\"', '"').replace("\\'", "'")
        s = re.sub(r"<[^<>]*>|#[a-z]|\[/?\w+( [^\]]*)?\]", "", s)
        yield from re.split(r"(?:\\n|\n\s*\n)+", s)


# ---------------------------------------------------------------- one file

def decode(data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def paragraphs(name, data, group):
    """The paragraphs of a file, or nothing when its kind is not read."""
    if name.endswith(".gz"):
        name, data = name[:-3], gzip.decompress(data)
    if name.endswith(".bz2"):
        name, data = name[:-4], bz2.decompress(data)
    if name.endswith((".dict.dz", ".dict")):
        return dictionary(decode(gzip.decompress(data) if name.endswith(".dz") else data))
    if name.endswith(".rdb"):
        return rdb(data)
    if re.search(r"/man/man[1-8]/", name):
        return man(decode(data))
    if name.endswith((".html", ".htm", ".xhtml", ".docbook", ".page", ".xml")):
        text = decode(data)
        if name.endswith(".xml") and not re.search(r"<(article|book|chapter|page|section|refentry|topic)\b", text[:3000]):
            return stories(text) if group == "story" else []
        return markup(text)
    if name.endswith(".info") or re.search(r"\.info-\d+$", name):
        return info(decode(data))
    if name.endswith(".pod"):
        return pod(decode(data))
    if group == "story":
        text = decode(data)
        return stories(text) if not re.search(r"/descript/|/docs?/|/database/", name) else lines_to_paragraphs(text.replace("%%%%", "\n\n"))
    if name.endswith(".md"):
        return markdown(decode(data))
    if name.endswith((".txt", ".text")) or group == "prose":
        return lines_to_paragraphs(decode(data))
    return []
