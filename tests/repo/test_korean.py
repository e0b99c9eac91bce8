"""The Korean edition is in step with the English, says the same, and reads as Korean."""

import json
import re
import warnings
from collections import Counter

import pytest
from conventions import ROOT, source
from markdown_it import MarkdownIt
from test_prose import dead_links

from helpers.base import language
from helpers.course import map as course
from helpers.course.editions import translation

CATALOG = translation.read("ko")
MESSAGES = [m for m in CATALOG if m.id and m.string and not m.fuzzy]
TERMS = [
    [cell.strip() for cell in row.split("|")[1:-1]]
    for row in (language.LOCALE / "ko.md").read_text("utf-8").splitlines()
    if row.startswith("| ")
][2:]
FOLDER = course.NOTEBOOKS / "ko"

CODE = re.compile(r"```.*?```|``.+?``|`[^`]+`", re.DOTALL)
LINK = re.compile(r"\]\(([^)]*)\)")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NOT = re.compile(
    r"\b(?:not|no|never|none|nothing|without|cannot|neither|nor|nobody|nowhere|\w+n't)\b", re.I
)
# What a Korean sentence says it with: verbs, endings, and words that hold it.
NOT_KO = re.compile(
    "않|못|없|아니|아닌|아닙|아님|안\\s|말고|말아|마세요|마십시오|모르|모릅|밖에|불가|빼고|뺀|제외"
)
# Words of the English that Korean may write as a digit.
COUNTED = re.compile(
    r"\b(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|"
    r"fifteen|sixteen|twenty|thirty|forty|fifty|sixty|hundred|thousand|million|first|second|third|"
    r"fourth|fifth|once|twice|half|both|quarter|tenth|dozen|single|each|next|last|other|pairs?|"
    r"January|February|March|April|May|June|July|August|September|October|November|December)\b",
    re.IGNORECASE,
)


def seen() -> dict[str, str]:
    """Remarks of these tests that somebody looked at and found harmless: why, by place and kind."""
    rows = (ROOT / "tests/repo/korean.tsv").read_text("utf-8").splitlines()[1:]
    return {tuple(row.split("\t")[:2]): row.split("\t")[2] for row in rows}


SEEN = seen()


def bare(text: str) -> str:
    """A text without code, addresses, tags and blanks."""
    return re.sub(r"\]\([^)]*\)|<[^>]*>|\{[^{}]*\}", " ", CODE.sub(" ", text))


def differences(english: str, korean: str) -> dict[str, str]:
    """What the two texts don't have in common, by kind."""
    found = {}
    for kind, pattern in (("code", CODE), ("links", LINK)):
        one, other = Counter(pattern.findall(english)), Counter(pattern.findall(korean))
        if one != other:
            found[kind] = f"missing {[*(one - other)]}, added {[*(other - one)]}"
    blanks = [{*language.BLANK.findall(CODE.sub("", text))} for text in (english, korean)]
    if blanks[0] != blanks[1]:
        found["blanks"] = f"{blanks[0] ^ blanks[1]}"
    one, other = (Counter(NUMBER.findall(bare(text))) for text in (english, korean))
    if one - other:
        found["numbers"] = f"missing {[*(one - other)]}"
    if (other - one).total() > len(COUNTED.findall(bare(english))):
        found["more numbers"] = f"added {[*(other - one)]}"
    if NOT.search(bare(english)) and not NOT_KO.search(bare(korean)):
        found["negation"] = f"lost {NOT.findall(bare(english))}"
    for kind, pattern in (("headings", r"^#+ "), ("rows", r"^\s*(?:- |\d+\. |\|)")):
        one, other = (len(re.findall(pattern, text, re.MULTILINE)) for text in (english, korean))
        if one != other:
            found[kind] = f"{one} and {other}"
    return found


def shown(markdown: str) -> str:
    """What a reader sees of a text beside its code: Markdown's own signs are gone."""
    blocks = MarkdownIt().enable("table").parse(language.BLANK.sub("", markdown))
    inline = [child for block in blocks for child in block.children or ()]
    return "\n".join(child.content for child in inline if child.type == "text")


PARTICLES = "은|는|이|가|을|를|와|과|의|에|에서|로|으로|도|만|부터|까지|보다|처럼|입니다"


def slips(korean: str, english: str = "") -> dict[str, str]:
    """What a Korean reader would stumble over, by kind."""
    found = {}
    text = CODE.sub("`x`", korean)
    if spaced := re.search(rf"`\s+(?:{PARTICLES})(?=[\s.,)]|$)", text):
        found["space"] = spaced[0]
    if shown(text).count("*") > shown(CODE.sub("`x`", english)).count("*"):
        found["emphasis"] = re.search(r".{0,20}\*.{0,20}", shown(text))[0]
    if wrong := re.search(r"훈련|그래디언트|그레이디언트|쉐이프|셰이프|형상의 모양", korean):
        found["term"] = wrong[0]
    if plain := re.search(r"(?:한다|이다|된다|있다|없다|했다)\.(?:\s|$)", korean):
        found["style"] = plain[0]
    return found


def test_it_is_in_step():
    texts = translation.texts()
    wanted = {(text.where, text.english) for text in texts}
    there = {(message.context, message.id) for message in CATALOG if message.id}
    assert there == wanted, "tpu-course translate"
    made = translation.generated("ko", translation.updated(CATALOG, texts))
    changed = [
        str(path.relative_to(ROOT))
        for path, text in made.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    assert changed == [], "tpu-course translate"
    assert {*FOLDER.iterdir()} == {path for path in made if path.parent == FOLDER}
    count = translation.count(CATALOG)
    if count.fuzzy or count.missing:
        warnings.warn(f"Korean: {count}: {[*count.fuzzy, *count.missing][:20]}", stacklevel=1)


def test_code_and_outputs_are_the_english_ones():
    for notebook in course.notebooks():
        there = json.loads(notebook.path.read_text("utf-8"))
        here = json.loads((FOLDER / notebook.path.name).read_text("utf-8"))
        for node in (there, here):
            for cell in node["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = []
        assert here == there


def test_it_says_what_the_english_says():
    found = {
        (message.context, kind): said
        for message in MESSAGES
        for kind, said in differences(message.id, message.string).items()
    }
    assert {key: said for key, said in found.items() if key not in SEEN} == {}


def test_it_reads_as_korean():
    found = {
        (message.context, kind): said
        for message in MESSAGES
        for kind, said in slips(message.string, message.id).items()
    }
    assert {key: said for key, said in found.items() if key not in SEEN} == {}


def test_nothing_is_english_by_accident():
    found = [
        message.context
        for message in MESSAGES
        if re.search(r"[a-z]{3,} [a-z]{3,} [a-z]{2,}", bare(message.id))
        and not re.search("[가-힣]", message.string)
    ]
    assert [where for where in found if (where, "English") not in SEEN] == []


def test_what_was_looked_at_is_still_there():
    remarks = {
        (m.context, kind)
        for m in MESSAGES
        for kind in (*differences(m.id, m.string), *slips(m.string, m.id), "English")
    }
    assert [key for key in SEEN if key not in remarks] == []
    assert all(SEEN.values())


def test_the_list_of_terms_has_every_heading_of_the_glossary():
    listed = {word for row in TERMS for word in row[0].split(", ")}
    glossary = (course.NOTEBOOKS / "GLOSSARY.md").read_text("utf-8")
    headings = re.findall(r"^## (?:<a[^>]*></a>)?(.*)$", glossary, re.MULTILINE)
    assert len(headings) > 60 and [word for word in headings if word not in listed] == []


def test_the_glossary_uses_the_terms_of_the_list():
    page = (FOLDER / "GLOSSARY.md").read_text("utf-8")
    terms = {word: row[1] for row in TERMS for word in row[0].split(", ")}
    entries = re.findall(r"^## (?:<a[^>]*></a>)?(.*)\n\n\*\*(.+?)\*\*", page, re.MULTILINE)
    assert len(entries) > 60
    for word, korean in entries:
        assert re.split(r"[(,]", terms[word])[0].strip() in korean, word


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    pages = {p.name: p.read_text("utf-8") for p in FOLDER.glob("*.md")}
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")
    for link, anchor in re.findall(r"\]\((?!#|\w+:)([^)#\s]+)(?:#([^)\s]+))?", text):
        assert (FOLDER / link).resolve().exists(), link
        if anchor and re.match(r"\d\d_", link):
            cells = json.loads((FOLDER / link).read_text("utf-8"))["cells"]
            assert any(anchor in translation._anchors(source(cell)) for cell in cells), anchor
    own = re.sub(r"\]\(\.\./[^)]*\)", "", text)
    assert dead_links(own, pages) == []


@pytest.mark.parametrize(
    ("english", "korean", "kinds"),
    [
        ("It takes 8 rows of `x`.", "`x`의 행 8개를 받습니다.", ""),
        ("It takes 8 rows.", "행 9개를 받습니다.", "numbers more numbers"),
        ("Use `tf.where`.", "`tf.cond`를 쓰세요.", "code"),
        ("It does not run.", "실행됩니다.", "negation"),
        ("It does not run.", "실행되지 않습니다.", ""),
        ("See [this](A.md).", "[이것](B.md)을 보세요.", "links"),
        ("{name} is gone.", "{이름}이 사라졌습니다.", "blanks"),
        ("## A\n\n- b\n- c", "# 가\n\n- 나", "rows"),
        ("two rows", "행 2개", ""),
    ],
)
def test_a_difference_is_seen(english, korean, kinds):
    assert " ".join(differences(english, korean)) == kinds


@pytest.mark.parametrize(
    ("korean", "kinds"),
    [
        ("`x` 는 큽니다.", "space"),
        ("`x`는 큽니다.", ""),
        ("**(a)**는 틀립니다.", "emphasis"),
        ("**배치**는 큽니다.", ""),
        ("모델을 훈련합니다.", "term"),
        ("크다고 한다.", "style"),
    ],
)
def test_a_slip_is_seen(korean, kinds):
    assert " ".join(slips(korean)) == kinds
