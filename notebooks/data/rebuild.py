"""Rebuild ko.txt, en.txt and programs.tsv, byte for byte, from LibreOffice's help pages.

The pages are Debian's packages libreoffice-help-ko and libreoffice-help-en-us, unpacked into one
folder; README.md beside this file has the three commands. Only Python's standard library is used.
"""

import argparse
import collections
import hashlib
import html.parser
import itertools
import pathlib
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator

FOLDERS = {"ko": "ko", "en": "en-US"}  # ours and the packages' names of the languages
KINDS = {"paragraph", "paragraphintable", "listitem", "listitemintable", "tablecontentintable"}
BYTES = 200_000  # of text, for the larger of the two files
PER_PAGE = 12  # paragraphs: so that a few long pages don't make up the corpus
# The program that a page is about is the folder it stands in. Draw has too few paragraphs.
PROGRAMS = {
    "swriter": "Writer",
    "scalc": "Calc",
    "simpress": "Impress",
    "schart": "Chart",
    "smath": "Math",
    "sbasic": "Basic",
}
PARTS = {"test": 64, "train": 128}  # paragraphs of each program, at most; pages are in one part
LABELLED_PER_PAGE = 6
INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
HANGUL = re.compile("[가-힣]")
LATIN = re.compile("[A-Za-z]")
SENTENCE_END = re.compile(r"[.!?]$")


class Paragraphs(html.parser.HTMLParser):
    """Collect a help page's paragraphs by their identifier, the same one in every language."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self._name: str | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a paragraph, or leave one out whose text depends on the operating system."""
        attributes = dict(attrs)
        if tag == "p":
            name = attributes.get("id") or ""
            is_text = attributes.get("class") in KINDS and name not in self.texts
            self._name = name if is_text else None
            self._text = []
        elif tag == "br":
            self._text.append(" ")
        elif (
            "hidden" in attributes or tag == "img"
        ):  # one of several variants, or a picture for a word
            self._name = None

    def handle_data(self, data: str) -> None:
        """Keep text inside a paragraph."""
        self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Close a paragraph: one line, composed (NFC), without invisible characters."""
        if tag == "p" and self._name:
            text = unicodedata.normalize("NFC", "".join(self._text)).translate(INVISIBLE)
            self.texts[self._name] = " ".join(text.split())
            self._name = None


def paragraphs(page: pathlib.Path) -> dict[str, str]:
    """Read one help page.

    Args:
        page: An HTML file of the package.

    Returns:
        Text by paragraph identifier, in the page's order.
    """
    parser = Paragraphs()
    parser.feed(page.read_text("utf-8"))
    return parser.texts


def translated(ko: str, en: str) -> bool:
    """Tell whether two paragraphs of one identifier are sentences and translate each other.

    Pages keep English where nobody has translated it yet. Equal numbers and a usual ratio of
    lengths sort out translations of an older version of the paragraph.
    """
    if not (20 <= len(ko) <= 400 and 30 <= len(en) <= 800):
        return False
    if len(HANGUL.findall(ko)) < 2 * len(LATIN.findall(ko)):
        return False
    if HANGUL.search(en) or len(LATIN.findall(en)) < 0.6 * len(en):
        return False
    if not 0.25 <= len(ko) / len(en) <= 0.9:
        return False
    if sorted(re.findall(r"\d+", ko)) != sorted(re.findall(r"\d+", en)):
        return False
    return bool(SENTENCE_END.search(ko) and SENTENCE_END.search(en))


def pairs(folder: pathlib.Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each page with its aligned pairs, each text once in the whole corpus.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Yields:
        The page's path in the help, and its pairs (Korean, English) in the page's order.
    """
    earlier: set[str] = set()  # texts of all pages so far
    korean_root = folder / FOLDERS["ko"] / "text"
    english_root = folder / FOLDERS["en"] / "text"
    for page in _pages(english_root):
        if not (korean_root / page).is_file():
            continue
        korean = paragraphs(korean_root / page)
        page_pairs = []
        for name, en in paragraphs(english_root / page).items():
            ko = korean.get(name, "")
            if translated(ko, en) and ko not in earlier and en not in earlier:
                earlier |= {ko, en}
                page_pairs.append((ko, en))
        yield page, page_pairs


def _pages(root: pathlib.Path) -> list[str]:
    """List the pages below a folder, sorted by their path in it."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.html"))


def _by_hash(pages: Iterable[str]) -> list[str]:
    """Put pages into an order that has nothing to do with their subjects."""
    return sorted(pages, key=lambda page: hashlib.sha256(page.encode()).digest())


def corpus(folder: pathlib.Path) -> list[tuple[str, str]]:
    """Choose pages by the hash of their path until the corpus is large enough.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Returns:
        Pairs (Korean, English), sorted by page, in each page's order.
    """
    by_page = dict(pairs(folder))
    corpus_pages = []
    korean_bytes = 0
    english_bytes = 0
    for page in _by_hash(by_page):
        corpus_pages.append(page)
        for ko, en in by_page[page][:PER_PAGE]:
            korean_bytes += len(f"{ko}\n".encode())
            english_bytes += len(f"{en}\n".encode())
        if max(korean_bytes, english_bytes) >= BYTES:
            break
    corpus_pairs = []
    for page in sorted(corpus_pages):
        corpus_pairs += by_page[page][:PER_PAGE]
    return corpus_pairs


def everything(folder: pathlib.Path) -> dict[str, dict[str, list[str]]]:
    """Read all paragraphs of the help that are in their page's language, 20 characters or more.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Returns:
        Texts by page, sorted, by language (``ko``, ``en``).
    """
    pages_of: dict[str, dict[str, list[str]]] = {}
    for language, name in FOLDERS.items():
        root = folder / name / "text"
        pages_of[language] = {}
        for page in _pages(root):
            texts = []
            for text in paragraphs(root / page).values():
                if len(text) >= 20 and _is_in(text, language):
                    texts.append(text)
            pages_of[language][page] = texts
    return pages_of


def _is_in(text: str, language: str) -> bool:
    hangul = len(HANGUL.findall(text))
    if language == "ko":
        return hangul >= len(LATIN.findall(text))
    return hangul == 0


def labelled(folder: pathlib.Path) -> list[tuple[str, str, str, str, str]]:
    """Choose paragraphs whose page is about one program, for a test part and a training part.

    Pages are taken in the order of their path's hash.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Returns:
        Part, program, page, English and Korean text.
    """
    by_page = dict(pairs(folder))
    rows: dict[tuple[str, str], list[tuple[str, str, str, str, str]]] = {}
    for program in PROGRAMS.values():
        rows[program, "train"] = []
        rows[program, "test"] = []
    for page in _by_hash(by_page):
        program = PROGRAMS.get(page.split("/")[0])
        if program is None:
            continue
        # The test part is filled first.
        part = "test" if len(rows[program, "test"]) < PARTS["test"] else "train"
        room = PARTS[part] - len(rows[program, part])
        for ko, en in by_page[page][: min(LABELLED_PER_PAGE, room)]:
            rows[program, part].append((part, program, page, en, ko))
    return list(itertools.chain.from_iterable(rows.values()))


def read_elsewhere(
    rows: list[tuple[str, str, str, str, str]], pages: dict[str, dict[str, list[str]]]
) -> set[tuple[str, str, str, str, str]]:
    """Find the rows of the test part whose text another page also has: a model may have read it.

    Args:
        rows: From `labelled`.
        pages: From `everything`.
    """
    places: collections.Counter[str] = collections.Counter()
    for texts_by_page in pages.values():
        for texts in texts_by_page.values():
            places.update(set(texts))
    repeated = set()
    for row in rows:
        part, _, _, en, ko = row
        if part == "test" and max(places[en], places[ko]) > 1:
            repeated.add(row)
    return repeated


def unlabelled(
    everything: dict[str, dict[str, list[str]]], without: Collection[str]
) -> dict[str, list[str]]:
    """Give a document for each page: its paragraphs that no earlier page has.

    Args:
        everything: From `everything`.
        without: Pages to leave out.

    Returns:
        Documents, in the pages' order, by language.
    """
    documents: dict[str, list[str]] = {}
    for language, pages in everything.items():
        earlier: set[str] = set()
        documents[language] = []
        for page, texts in pages.items():
            if page in without:
                continue
            # Each text once, in order.
            page_texts = [text for text in dict.fromkeys(texts) if text not in earlier]
            earlier.update(page_texts)
            if page_texts:
                documents[language].append(" ".join(page_texts))
    return documents


def write(path: pathlib.Path, lines: Iterable[str]) -> str:
    """Write a file whole or not at all.

    Args:
        path: The file.
        lines: Its lines, without line ends.

    Returns:
        The SHA-256 of its bytes.
    """
    data = "".join(f"{line}\n" for line in lines).encode()
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    return hashlib.sha256(data).hexdigest()


def main(arguments: list[str] | None = None) -> None:
    """Read the pages, write the files, print what they hold."""
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("help", type=pathlib.Path, help="the unpacked usr/share/libreoffice/help")
    parser.add_argument("--output", type=pathlib.Path, default=here, help="default: %(default)s")
    parser.add_argument(
        "--pretraining",
        type=pathlib.Path,
        metavar="DIR",
        help="write the text of notebook 10's pretraining there: all pages but those of the test",
    )
    options = parser.parse_args(arguments)
    for name in FOLDERS.values():
        texts = options.help / name / "text"
        if not texts.is_dir():
            sys.exit(f"{texts} is missing: unpack both packages into one folder.")
    korean, english = zip(*corpus(options.help), strict=True)
    for language, lines in (("ko", korean), ("en", english)):
        digest = write(options.output / f"{language}.txt", lines)
        print(f"{language}.txt  {len(lines)} paragraphs  sha256 {digest}")
    candidates = labelled(options.help)
    pages = everything(options.help)
    repeated = read_elsewhere(candidates, pages)
    rows = [row for row in candidates if row not in repeated]
    lines = ["\t".join(row) for row in [("part", "program", "page", "en", "ko"), *rows]]
    digest = write(options.output / "programs.tsv", lines)
    print(f"programs.tsv  {len(rows)} paragraphs  sha256 {digest}")
    if options.pretraining:
        options.pretraining.mkdir(parents=True, exist_ok=True)
        test_pages = {row[2] for row in candidates if row[0] == "test"}
        for language, documents in unlabelled(pages, test_pages).items():
            digest = write(options.pretraining / f"help.{language}.txt", documents)
            print(f"help.{language}.txt  {len(documents)} pages  sha256 {digest}")


if __name__ == "__main__":
    main()
