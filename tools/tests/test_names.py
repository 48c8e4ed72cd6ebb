"""Every name in backticks in docstrings, ARCHITECTURE.md and CONTRIBUTING.md exists in the code of this repository.

A plain name in a docstring is known if it is a file, a folder or a module; a class; an identifier or a word of a string
in the same file or in one that it imports; a field of a message; a setting. In a name of two parts the first part has
to define the second. In a longer text, such as a command or the path of a znode, each word has to occur somewhere in
the code. Comments and docstrings define nothing. `ELSEWHERE` lists the names that other projects define.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "wire",
    "log",
    "controller",
    "broker",
    "kit",
    "pipeline",
    "docker",
    "tools",
    "bench",
    "compat_tests",
    "docs",
    ".ci",
)
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")

ELSEWHERE = frozenset(
    {
        # Kafka's, Java's and ZooKeeper's
        "HashMap",
        "String.hashCode",
        "Utils.abs",
        "allow.everyone",
        "getErrorResponse",
        "jute.maxbuffer",
        # of operating systems and of Python's libraries
        ".venv",
        ".venv/bin/pytest",
        "__cause__",
        "create_server",
        "ip",
        "sendfile",
        "with_network",
        # values of settings, and endings of a log's files
        "always",
        "cleaned",
        "compact",
        "delete",
        "deleted",
        "lock",
        "snapshot",
        "txnindex",
        # folders and names that a run makes
        "broker-0/",
        "broker-1/",
        "broker-1-fetcher-0",
        "broker-2-fetcher-0",
        "build/stacks/",
        "dist/",
        "brokers/1",
        "odradek-PID-N",
        "topic-partition.unique-delete",
        "topic-partition.unique-future",
        "topics/t",
        "users/u/clients/c",
    }
)

NAME = re.compile(r"\.?[A-Za-z_][\w-]*(?:[./][\w-]+)*/?")
WORD = re.compile(r"[A-Za-z_][\w.-]*\w|[A-Za-z_]")
IN_BACKTICKS = re.compile(r"(?<![`\w])`([^`]+)`(?!`)")
PLACEHOLDER = re.compile(r"[A-Z_]+|[a-z]|v?[_\d]+")
PYTHON = frozenset({*keyword.kwlist, *dir(builtins)})


class Docstring(NamedTuple):
    file: Path
    line: int
    text: str


class Code:
    """The names that the files of the repository define."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.classes: set[str] = set()
        self.public: set[str] = set()
        """Fields of messages, settings, and all other names of more than one word."""
        self.words: set[str] = set()
        self.in_file: dict[Path, set[str]] = {}
        self.imported: dict[Path, set[str]] = {}
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        """By the name of a class, or the last name of a module, the names in it."""
        self.bases: defaultdict[str, set[str]] = defaultdict(set)
        self.docstrings: list[Docstring] = []
        for path in files():
            self._add_path(path.relative_to(ROOT))
            if path == Path(__file__):
                continue  # this file names things that do not exist
            if path.suffix == ".py":
                self._add_python(path)
            elif path.suffix != ".md":
                self._add_text(path)

    def _add_path(self, path: Path) -> None:
        for end in range(1, len(path.parts) + 1):
            for begin in range(end):
                name = "/".join(path.parts[begin:end])
                self.paths.update((name, name.removesuffix(".py").replace("/", ".")))

    def _add_text(self, path: Path) -> None:
        found = set(words(re.sub(r"(?<!\S)#.*", "", path.read_text(errors="replace"))))
        self.words |= found
        self.public |= found if path.suffix == ".msg" else {word for word in found if is_compound(word)}

    def _add_python(self, path: Path) -> None:
        tree = ast.parse(path.read_text())
        documented = {
            node.value
            for parent in ast.walk(tree)
            for node in ast.iter_child_nodes(parent)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }
        self.docstrings += [Docstring(path, node.lineno, str(node.value)) for node in documented]
        own = self.in_file[path] = set()
        imported = self.imported[path] = set()
        for node in ast.walk(tree):
            if node in documented:
                continue
            found = set(names_of(node))
            own |= found
            if isinstance(node, ast.Constant):
                self.public.update(word for word in found if is_compound(word))
            elif isinstance(node, ast.ClassDef):
                self.classes.add(node.name)
                self.members[node.name].update(name for each in ast.walk(node) for name in names_of(each))
                self.bases[node.name].update(name for base in node.bases for name in names_of(base))
            elif isinstance(node, ast.ImportFrom | ast.Import):
                imported |= found
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Definition":
                self.public.update(each.value for each in node.args[:1] if isinstance(each, ast.Constant))
        self.words |= own
        self.members[path.parent.name if path.name == "__init__.py" else path.stem] |= own

    def has(self, name: str, file: Path | None) -> bool:
        """Return whether the name is known in the file, or in any file if None."""
        if name in ELSEWHERE or name in PYTHON or name in self.paths or name.rstrip("/") in self.paths:
            return True
        if "/" in name or name.endswith(".py"):
            return False
        name = name.lstrip(".")  # the ending of a file's name
        if name in ELSEWHERE or name in (self.words if file is None else self._known_in(file)):
            return True
        owner, dot, attribute = name.rpartition(".")
        return bool(dot) and self.has(owner, file) and self._has_member(owner.rpartition(".")[2], attribute)

    @cache  # noqa: B019  one object, as long as the tests run
    def _known_in(self, file: Path) -> set[str]:
        imported = (self.members[module] for module in self.imported[file] if module in self.members)
        return self.in_file[file].union(self.classes, self.public, *imported)

    def _has_member(self, owner: str, attribute: str, seen: frozenset[str] = frozenset()) -> bool:
        if owner not in self.members:
            return attribute in self.words  # an object of some class: `ctx.broker`
        return attribute in self.members[owner] or any(
            self._has_member(base, attribute, seen | {owner})
            for base in self.bases[owner] - seen - {owner}
            if base in self.members
        )


def files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file())
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path


def names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.alias(name=name, asname=other):
            yield from (*name.split("."), *([other] if other else []))
        case ast.ImportFrom(module=str(name), names=names):
            yield from (*name.split("."), *(alias.name for alias in names))
        case ast.Import(names=names):
            yield from (part for alias in names for part in alias.name.split("."))
        case ast.Constant(value=str(text)):
            yield from words(text)
        case ast.Constant(value=bytes(data)):
            yield from words(data.decode("latin-1"))


def words(text: str) -> Iterator[str]:
    for word in WORD.findall(text):
        yield word
        yield from (part for part in re.split(r"[.-]", word) if part)


def is_compound(word: str) -> bool:
    return any(sign in word for sign in "._-") or word.isupper()


@cache
def code() -> Code:
    return Code()


def missing(text: str, file: Path | None = None) -> list[str]:
    """Return the names in backticks that have no definition for this file or page."""
    found = []
    texts = IN_BACKTICKS.findall(text)
    for quoted in texts:
        if any(each.endswith(f".{quoted}") for each in texts):
            continue  # another name in backticks gives it in full
        if any(sign in quoted for sign in "<*…"):
            continue  # a pattern
        if NAME.fullmatch(quoted):
            found += [] if PLACEHOLDER.fullmatch(quoted) or code().has(quoted, file) else [quoted]
        else:
            found += [name for name in NAME.findall(quoted) if not is_known_anywhere(name)]
    return found


def is_known_anywhere(name: str) -> bool:
    """Return whether this part of a longer text, or each of its words, occurs anywhere."""
    return code().has(name, None) or all(
        PLACEHOLDER.fullmatch(word) or code().has(word, None) for word in re.split(r"[./]", name) if word
    )


def test_every_name_in_backticks_in_a_docstring_exists() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file, line, text in code().docstrings
        for name in missing(text, file)
    ]
    assert not found, "\n".join(sorted(found))


def test_every_name_in_backticks_on_the_pages_for_newcomers_exists() -> None:
    found = [f"{page}: {name}" for page in PAGES for name in missing((ROOT / page).read_text())]
    assert not found, "\n".join(found)


def test_stale_names_are_found() -> None:
    file = ROOT / "tools/odradek_peers/cache.py"
    text = "`Nowhere`, `cache.nowhere`, `gone.py`, `ApacheKafka.nowhere`, `acks`, `subscribe`, `make nothing-of-it`"
    assert missing(text, file) == [
        "Nowhere",
        "cache.nowhere",
        "gone.py",
        "ApacheKafka.nowhere",
        "subscribe",
        "nothing-of-it",
    ]
