"""Rebuild ko.txt and en.txt, byte for byte, from LibreOffice's help pages.

The pages are Debian's packages libreoffice-help-ko and libreoffice-help-en-us, unpacked into one
folder; README.md beside this file has the three commands. Only Python's standard library is used.
"""

import argparse
import hashlib
import html.parser
import pathlib
import re
import sys
import unicodedata
from collections.abc import Iterator

FOLDERS = {"ko": "ko", "en": "en-US"}  # ours and the packages' names of the languages
KINDS = {"paragraph", "paragraphintable", "listitem", "listitemintable", "tablecontentintable"}
BYTES = 200_000  # of text, for the larger of the two files
PER_PAGE = 12  # paragraphs: so that a few long pages don't make up the corpus
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
    """Read the pages, write the two files, print what they hold."""
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("help", type=pathlib.Path, help="the unpacked usr/share/libreoffice/help")
    parser.add_argument("--output", type=pathlib.Path, default=here, help="default: %(default)s")
    given = parser.parse_args(arguments)
    for name in FOLDERS.values():
        if not (given.help / name / "text").is_dir():
            sys.exit(
                f"{given.help / name / 'text'} is missing: unpack both packages into one folder."
            )
    chosen = corpus(given.help)
    for language, lines in zip(FOLDERS, map(list, zip(*chosen, strict=True)), strict=True):
        digest = write(given.output / f"{language}.txt", lines)
        print(f"{language}.txt  {len(lines)} paragraphs  sha256 {digest}")  # noqa: T201


if __name__ == "__main__":
    main()
