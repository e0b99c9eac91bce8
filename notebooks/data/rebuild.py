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
from collections.abc import Collection, Iterator

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
        self.found: dict[str, str] = {}
        self._name: str | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a paragraph, or leave one out whose text depends on the operating system."""
        given = dict(attrs)
        if tag == "p":
            kind, name = given.get("class"), given.get("id") or ""
            self._name = name if kind in KINDS and name not in self.found else None
            self._text = []
        elif tag == "br":
            self._text.append(" ")
        elif "hidden" in given or tag == "img":  # one of several variants, or a picture for a word
            self._name = None

    def handle_data(self, data: str) -> None:
        """Keep text inside a paragraph."""
        self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Close a paragraph: one line, composed (NFC), without invisible characters."""
        if tag == "p" and self._name:
            text = unicodedata.normalize("NFC", "".join(self._text)).translate(INVISIBLE)
            self.found[self._name] = " ".join(text.split())
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
    return parser.found


def translated(ko: str, en: str) -> bool:
    """Tell whether two paragraphs of one identifier are sentences and translate each other.

    Pages keep English where nobody has translated it yet. Equal numbers and a usual ratio of
    lengths sort out translations of an older version of the paragraph.
    """
    hangul, latin = len(HANGUL.findall(ko)), len(LATIN.findall(ko))
    return (
        20 <= len(ko) <= 400
        and 30 <= len(en) <= 800
        and hangul >= 2 * latin
        and not HANGUL.search(en)
        and len(LATIN.findall(en)) >= 0.6 * len(en)
        and 0.25 <= len(ko) / len(en) <= 0.9
        and sorted(re.findall(r"\d+", ko)) == sorted(re.findall(r"\d+", en))
        and all(SENTENCE_END.search(text) for text in (ko, en))
    )


def pairs(folder: pathlib.Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each page with its aligned pairs, each text once in the whole corpus.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Yields:
        The page's path in the help, and its pairs (Korean, English) in the page's order.
    """
    seen: set[str] = set()
    root = {language: folder / name / "text" for language, name in FOLDERS.items()}
    for page in sorted(p.relative_to(root["en"]).as_posix() for p in root["en"].rglob("*.html")):
        if not (root["ko"] / page).is_file():
            continue
        korean, english = paragraphs(root["ko"] / page), paragraphs(root["en"] / page)
        kept = []
        for name, en in english.items():
            ko = korean.get(name, "")
            if translated(ko, en) and ko not in seen and en not in seen:
                seen |= {ko, en}
                kept.append((ko, en))
        yield page, kept


def corpus(folder: pathlib.Path) -> list[tuple[str, str]]:
    """Choose pages by the hash of their path until the corpus is large enough.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Returns:
        Pairs (Korean, English), sorted by page, in each page's order.
    """
    by_page = dict(pairs(folder))
    chosen: dict[str, list[tuple[str, str]]] = {}
    sizes = [0, 0]
    for page in sorted(by_page, key=lambda name: hashlib.sha256(name.encode()).digest()):
        chosen[page] = by_page[page][:PER_PAGE]
        for pair in chosen[page]:
            sizes = [size + len(text.encode()) + 1 for size, text in zip(sizes, pair, strict=True)]
        if max(sizes) >= BYTES:
            break
    return [pair for page in sorted(chosen) for pair in chosen[page]]


def everything(folder: pathlib.Path) -> dict[str, dict[str, list[str]]]:
    """Read all paragraphs of the help that are in their page's language, 20 characters or more.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Returns:
        Texts by page, sorted, by language (``ko``, ``en``).
    """
    found: dict[str, dict[str, list[str]]] = {}
    for language, name in FOLDERS.items():
        root = folder / name / "text"
        pages = found[language] = {}
        for page in sorted(path.relative_to(root).as_posix() for path in root.rglob("*.html")):
            texts = [text for text in paragraphs(root / page).values() if len(text) >= 20]
            korean = [len(HANGUL.findall(text)) for text in texts]
            latin = [len(LATIN.findall(text)) for text in texts]
            pages[page] = [
                text
                for text, ko, en in zip(texts, korean, latin, strict=True)
                if (ko >= en if language == "ko" else not ko)
            ]
    return found


def labelled(folder: pathlib.Path) -> list[tuple[str, str, str, str, str]]:
    """Choose paragraphs whose page is about one program, for a test part and a training part.

    Pages are taken in the order of their path's hash.

    Args:
        folder: ``usr/share/libreoffice/help`` of both packages.

    Returns:
        Part, program, page, English and Korean text.
    """
    by_page = dict(pairs(folder))
    rows: dict[tuple[str, str], list[tuple[str, str, str, str, str]]] = {
        (program, part): [] for program in PROGRAMS.values() for part in sorted(PARTS)[::-1]
    }
    for page in sorted(by_page, key=lambda name: hashlib.sha256(name.encode()).digest()):
        if not (program := PROGRAMS.get(page.split("/")[0])):
            continue
        part = "test" if len(rows[program, "test"]) < PARTS["test"] else "train"
        chosen, room = rows[program, part], PARTS[part] - len(rows[program, part])
        first = by_page[page][: min(LABELLED_PER_PAGE, room)]
        chosen += [(part, program, page, en, ko) for ko, en in first]
    return list(itertools.chain.from_iterable(rows.values()))


def read_elsewhere(
    rows: list[tuple[str, str, str, str, str]], pages: dict[str, dict[str, list[str]]]
) -> set[tuple[str, str, str, str, str]]:
    """Find the rows of the test part whose text another page has, too: a model may have read it.

    Args:
        rows: From `labelled`.
        pages: From `everything`.
    """
    places: collections.Counter[str] = collections.Counter()
    for texts in itertools.chain.from_iterable(found.values() for found in pages.values()):
        places.update(set(texts))
    return {row for row in rows if row[0] == "test" and max(places[t] for t in row[3:]) > 1}


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
        seen: set[str] = set()
        documents[language] = []
        for page, texts in pages.items():
            new = [] if page in without else [text for text in texts if text not in seen]
            new = list(dict.fromkeys(new))
            seen.update(new)
            documents[language] += [" ".join(new)] if new else []
    return documents


def write(path: pathlib.Path, lines: list[str]) -> str:
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
    given = parser.parse_args(arguments)
    for name in FOLDERS.values():
        if not (given.help / name / "text").is_dir():
            sys.exit(
                f"{given.help / name / 'text'} is missing: unpack both packages into one folder."
            )
    chosen = corpus(given.help)
    for language, lines in zip(FOLDERS, map(list, zip(*chosen, strict=True)), strict=True):
        digest = write(given.output / f"{language}.txt", lines)
        print(f"{language}.txt  {len(lines)} paragraphs  sha256 {digest}")
    chosen, pages = labelled(given.help), everything(given.help)
    elsewhere = read_elsewhere(chosen, pages)
    rows = [row for row in chosen if row not in elsewhere]
    header = ("part", "program", "page", "en", "ko")
    digest = write(given.output / "programs.tsv", ["\t".join(row) for row in (header, *rows)])
    print(f"programs.tsv  {len(rows)} paragraphs  sha256 {digest}")
    if given.pretraining:
        given.pretraining.mkdir(parents=True, exist_ok=True)
        tested = {page for part, _, page, *_ in chosen if part == "test"}
        for language, documents in unlabelled(pages, tested).items():
            digest = write(given.pretraining / f"help.{language}.txt", documents)
            print(f"help.{language}.txt  {len(documents)} pages  sha256 {digest}")


if __name__ == "__main__":
    main()
