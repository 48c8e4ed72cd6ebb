"""Parse the definitions of messages: the compact notation of `definitions/*.msg`.

A definition is one API (sections `request` and `response`), or one record, header, coordinator key or value, or data:

    Produce 0, versions 0-13, flexible 9+
    request
        transactional_id  string?           3+  = null
        topic_data        [TopicProduceData]
            name              string        0-12  ignorable

A field is a name and a type, then optionally the versions that have it (by default those of its parent), `tag N`,
`= default`, `ignorable` (an encoder drops the value if the version lacks the field, instead of raising), `inflexible`
(old length format in flexible versions too). `?` allows null, `?10+` from version 10 on. An indented block defines the
struct that the type names; `struct Name` defines one that several fields share. Owns the notation; encodes nothing.
"""

import os

NEVER = 1 << 15
"""A version above all versions."""

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The types of fixed size and their format characters of `struct`."""

TYPES = {*FIXED, "string", "bytes", "records"}

_ZERO = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "records": None}


class StructType:
    """A named sequence of fields."""

    __slots__ = ("_tagged", "fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[Field] = []
        self._tagged: dict[int, list[Field]] = {}

    def present(self, version: int) -> "list[Field]":
        """Return the fields of that version in wire order, without tagged ones."""
        return [f for f in self.fields if f.since <= version <= f.until and f.tag is None]

    def tagged(self, version: int) -> "list[Field]":
        """Return the tagged fields of that version by ascending tag. Call it only when all fields have been added."""
        known = self._tagged.get(version)
        if known is None:
            found = [(f.tag, f) for f in self.fields if f.tag is not None and f.since <= version <= f.until]
            known = self._tagged[version] = [f for _, f in sorted(found)]
        return known

    def absent(self, version: int) -> "list[Field]":
        return [f for f in self.fields if not f.since <= version <= f.until]


class Field:
    """One field in all versions. `struct` is set if `type` names a struct; `array` if the field is a list of the
    type."""

    __slots__ = (
        "array",
        "default",
        "flexible",
        "ignorable",
        "name",
        "null_since",
        "null_until",
        "since",
        "struct",
        "tag",
        "type",
        "until",
    )

    def __init__(self, name: str, since: int, until: int) -> None:
        self.name = name
        self.since = since
        self.until = until
        self.type = ""
        self.array = False
        self.struct: StructType | None = None
        self.null_since = NEVER
        self.null_until = -1
        self.tag: int | None = None
        self.default: object = None
        self.ignorable = False
        self.flexible = True

    @property
    def lazy(self) -> bool:
        """Whether the default is created at first use: a tagged struct, which is rarely present."""
        return self.tag is not None and self.default is ... and self.null_until < 0

    def nullable(self, version: int) -> bool:
        return self.null_since <= version <= self.null_until


class MessageType:
    """The definition of one message: its root struct and its versions (inclusive, as Kafka writes them)."""

    __slots__ = ("definition", "flexible_from", "key", "kind", "max_version", "min_version", "name", "root", "structs")

    def __init__(
        self, *, definition: str, kind: str, name: str, key: int, versions: tuple[int, int], flexible_from: int
    ) -> None:
        self.definition = definition
        self.kind = kind
        self.name = name
        self.key = key
        self.min_version, self.max_version = versions
        self.flexible_from = flexible_from
        self.root = StructType(name)
        self.structs: dict[str, StructType] = {}

    def flexible(self, version: int) -> bool:
        return version >= self.flexible_from


class NotationError(Exception):
    """A definition with a syntax error, which is our bug."""


def load(definition: str) -> list[MessageType]:
    """Return the messages of one definition file: request and response, or one message."""
    path = os.path.join(os.path.dirname(__file__), "definitions", definition + ".msg")
    with open(path, encoding="ascii") as file:
        return parse(definition, file.read())


def definitions() -> list[str]:
    """Return the names of all definition files, sorted."""
    folder = os.path.join(os.path.dirname(__file__), "definitions")
    return sorted(name[:-4] for name in os.listdir(folder) if name.endswith(".msg"))


def parse(definition: str, text: str) -> list[MessageType]:
    """Return the messages of a definition's text. Raises NotationError."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    head = lines[0].split(",")
    words = head[0].split()
    versions = (0, 0)
    flexible_from = NEVER
    for clause in head[1:]:
        what, value = clause.split()
        if what == "flexible":
            flexible_from = _versions(value, NEVER)[0]
        elif what in ("version", "versions"):
            versions = _versions(value, NEVER)
        else:
            raise NotationError(f"{definition}: unknown clause {clause!r}, expected 'flexible' or 'versions'")
    messages: list[MessageType] = []
    if words[0][0].isupper():
        for i, line in enumerate(lines[1:], 1):
            if line in ("request", "response"):
                message = MessageType(
                    definition=definition,
                    kind=line,
                    name=words[0] + line.title(),
                    key=int(words[1]),
                    versions=versions,
                    flexible_from=flexible_from,
                )
                _body(message, lines, i + 1)
                messages.append(message)
    else:
        key = int(words[2]) if len(words) > 2 else -1
        message = MessageType(
            definition=definition,
            kind=words[0],
            name=words[1],
            key=key,
            versions=versions,
            flexible_from=flexible_from,
        )
        messages.append(message)
        _body(message, lines, 1)
    return messages


def _body(message: MessageType, lines: list[str], start: int) -> None:
    """Add the fields from line `start` to the next section. Stack: (indent of fields, their struct, its versions)."""
    everywhere = (message.min_version, message.max_version)
    stack = [(4, message.root, *everywhere)]
    references: list[Field] = []
    for line in lines[start:]:
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            break
        while stack[-1][0] > indent:
            stack.pop()
        words = line.split()
        if words[0] == "struct":
            shared = message.structs.setdefault(words[1], StructType(words[1]))
            stack.append((indent + 4, shared, *everywhere))
            continue
        field = _field(message, words, stack[-1][2], stack[-1][3])
        stack[-1][1].fields.append(field)
        if field.type not in TYPES:
            references.append(field)
            field.struct = message.structs.setdefault(field.type, StructType(field.type))
            stack.append((indent + 4, field.struct, field.since, field.until))
    for field in references:
        if field.struct is None or not field.struct.fields:
            raise NotationError(f"{message.name}: struct {field.type} is not defined")


def _field(message: MessageType, words: list[str], since: int, until: int) -> Field:
    field = Field(words[0], since, until)
    kind, nullable, null_versions = words[1].partition("?")
    field.array = kind[0] == "["
    field.type = kind[1:-1] if field.array else kind
    text = None
    i = 2
    while i < len(words):
        word = words[i]
        if word[0].isdigit():
            field.since, field.until = _versions(word, until)
        elif word == "ignorable":
            field.ignorable = True
        elif word == "tag":
            i += 1
            field.tag = int(words[i])
        elif word == "=":
            i += 1
            text = words[i]
        elif word == "inflexible":
            field.flexible = False
        else:
            raise NotationError(f"{message.name}.{field.name}: unknown word {word!r}")
        i += 1
    if nullable:
        field.null_since, field.null_until = (
            _versions(null_versions, field.until) if null_versions else (field.since, field.until)
        )
    field.default = _default(field, text)
    return field


def _default(field: Field, text: str | None) -> object:
    """Return the default: the value of a field that a version lacks. [] means a new list, ... a new struct."""
    if text == "null":
        return None
    if field.array:
        return []
    if field.type not in TYPES:
        return ...
    if text is None:
        return _ZERO.get(field.type, 0)
    return text == "true" if field.type == "bool" else float(text) if field.type == "float64" else int(text)


def _versions(text: str, until: int) -> tuple[int, int]:
    """Parse ``3+``, ``0-12`` or ``8`` to an inclusive range."""
    if text[-1] == "+":
        return int(text[:-1]), until
    first, dash, last = text.partition("-")
    return int(first), int(last if dash else first)
