"""Adds switches to Rust sources: an environment variable selects the mutant that is active. See tools/mutants.py."""

import re

SWITCH = """
#[doc(hidden)]
pub fn __mutant(number: u32) -> bool {
    static ACTIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let read = || std::env::var("WEIR_MUTANT").map_or(0, |text| text.parse().expect("WEIR_MUTANT is a number"));
    *ACTIVE.get_or_init(read) == number
}
"""

# How the source is changed at an edit of each kind: the text before all mutants, the text of each mutant, the text
# before the original, the text after it.
FORMS = {
    "value": ("(", "if {on} {{ {text} }} else ", "{ ", " })"),
    "body": ("", " if {on} {{ return {text}; }}", "", ""),
    "guard": ("", "!{on} && ", "(", ")"),
    "arm": (" if ", "!{on} && ", "true", ""),
    "field": ("{label}: (", "if {on} {{ {text} }} else ", "{ ", " })"),
    "const": ("/*", "", "", "*/"),
}
# Parts of a program that are evaluated at compile time, where no environment variable can be read.
CONSTANT = {"const_item", "static_item", "array_type", "type_arguments", "enum_variant", "const_block"}
# Errors for operators whose operands have the wrong types. They also occur without a switch.
OPERAND_ERRORS = {"E0277", "E0368", "E0369"}


class Mutant:
    """A change that cargo-mutants lists: the bytes from `start` to `end` of a file are replaced.

    `result` is caught, timeout, missed, unviable (it does not compile), or None as long as it is unknown.
    """

    def __init__(self, number, listed, source):
        self.number = number
        self.name = listed["name"]
        self.file = listed["file"]
        self.genre = listed["genre"]
        self.replacement = listed["replacement"].encode()
        self.return_type = (listed["function"] or {}).get("return_type", "")
        self.start, self.end = (offset(source, listed["span"][side]) for side in ("start", "end"))
        self.has_switch = True
        self.result = None

    def apply(self, source, start=0, end=None):
        """Returns the source, or the part from `start` to `end`, with the change."""
        return source[start : self.start] + self.replacement + source[self.end : end]


class Edit:
    """A change to the source at which mutants are switched on and off. Edits may be nested, but do not overlap."""

    def __init__(self, start, end, kind, label=""):
        self.start, self.end, self.kind, self.label = start, end, kind, label
        self.variants = []


def offset(source, position):
    """Returns the offset of a line and a column, which counts characters.

    >>> offset("a\\nä b\\n".encode(), {"line": 2, "column": 3})
    5
    """
    lines = source.split(b"\n")
    before = lines[position["line"] - 1].decode()[: position["column"] - 1].encode()
    return sum(len(line) + 1 for line in lines[: position["line"] - 1]) + len(before)


def emit(source, edits):
    """Returns the source with switches, and its regions: start, end, the mutants that an error there concerns, kind.

    A mutant's text is the source with only its change, so edits within it apply only to the original:

    >>> less, minus, plus, body = Edit(9, 19, "value"), Edit(9, 11, "value"), Edit(14, 19, "value"), Edit(8, 8, "body")
    >>> less.variants, minus.variants, body.variants = [(1, b"-a > b + c")], [(2, b"a")], [(3, b"true")]
    >>> plus.variants = [(4, b"b - c"), (5, b"b * c")]
    >>> output, regions = emit(b"fn f() { -a < b + c }", [plus, minus, less, body])
    >>> print(output.decode())  # doctest: +NORMALIZE_WHITESPACE
    fn f() { if crate::__mutant(3) { return true; } (if crate::__mutant(1) { -a > b + c } else
    { (if crate::__mutant(2) { a } else { -a }) <
    (if crate::__mutant(4) { b - c } else if crate::__mutant(5) { b * c } else { b + c }) }) }
    >>> [(output[start:end].decode(), mutants) for start, end, mutants, _ in regions if 4 in mutants][0]
    ('if crate::__mutant(4) { b - c } else ', [4])

    An arm is deleted by a guard, and `const` is removed, because constant functions cannot read a switch:

    >>> const, arm, guard = Edit(0, 5, "const"), Edit(26, 26, "arm"), Edit(38, 43, "guard")
    >>> arm.variants, guard.variants = [(1, b"")], [(2, b"")]
    >>> print(emit(b"const fn f() { match x { 1 => 2, y if y > 2 => 3 } }", [arm, const, guard])[0].decode())
    /*const*/ fn f() { match x { 1 if !crate::__mutant(1) && true => 2, y if !crate::__mutant(2) && (y > 2) => 3 } }
    """
    output, regions, opened, position = bytearray(), [], [], 0

    def close_until(end):
        nonlocal position
        while opened and opened[-1][0].end <= end:
            edit, start = opened.pop()
            output.extend(source[position : edit.end] + FORMS[edit.kind][3].encode())
            position = edit.end
            regions.append((start, len(output), [mutant for mutant, _ in edit.variants], None))

    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        close_until(edit.start)
        output.extend(source[position : edit.start])
        position = edit.start
        opened.append((edit, len(output)))
        before, each, original, _ = FORMS[edit.kind]
        output.extend(before.format(label=edit.label).encode())
        for mutant, text in edit.variants:
            start, on = len(output), f"crate::__mutant({mutant})"
            output.extend(each.format(on=on, text=text.decode()).encode())
            regions.append((start, len(output), [mutant], edit.kind))
        output.extend(original.encode())
    close_until(len(source))
    return bytes(output + source[position:]), regions


def ancestor(node, kinds):
    while node is not None and node.type not in kinds:
        node = node.parent
    return node


def const_functions(root):
    """Yields the span of each `const` before a function, and the function's name after that of its type."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        nodes += node.children
        for part in node.children if node.type == "function_item" else ():
            for word in part.children if part.type == "function_modifiers" else ():
                if word.type == "const":
                    yield word.start_byte, word.end_byte, function_name(node)


def function_name(function):
    name = function.child_by_field_name("name").text.decode()
    block = ancestor(function, {"impl_item", "trait_item"})
    kind = block and (block.child_by_field_name("type") or block.child_by_field_name("name"))
    return f"{bare(kind.text.decode())}::{name}" if kind else name


def bare(path):
    """Removes the generic arguments and all but the last two parts of a path.

    >>> bare("crate::a::Table::<Vec<u8>, 4>::new"), bare("Record<'_>"), bare("f")
    ('Table::new', 'Record', 'f')
    """
    former = None
    while path != former:
        former, path = path, re.sub(r"(::)?<[^<>]*>", "", path)
    return "::".join(path.split("::")[-2:])


def find_edit(mutant, source, root):
    """Returns the start, end, kind and label of a mutant's edit and the mutant's text there, or None without one."""
    node = root.descendant_for_byte_range(mutant.start, max(mutant.start, mutant.end - 1))
    if mutant.genre == "FnValue":
        while node and not (node.type == "block" and node.parent.type == "function_item"):
            node = node.parent
        # A function that returns `impl Trait` can return only one type.
        if node is None or "impl " in mutant.return_type:
            return None
        return node.start_byte + 1, node.start_byte + 1, "body", "", mutant.replacement
    if mutant.genre in ("BinaryOperator", "UnaryOperator"):
        node = ancestor(node, {"binary_expression", "compound_assignment_expr", "unary_expression", "let_chain"})
        operator = node and (node.child_by_field_name("operator") or node.child(0))
        if operator is None or operator.start_byte != mutant.start:
            return None
        # The new operator may have a different precedence, so the whole chain of operators is changed.
        while node.type == node.parent.type == "binary_expression":
            node = node.parent
        if node.parent.type == "let_chain" and mutant.replacement == b"||":
            return None
    elif mutant.genre == "MatchArmGuard":
        if re.search(rb"\blet\b", source[mutant.start : mutant.end]):
            return None
        return mutant.start, mutant.end, "value", "", mutant.replacement
    elif mutant.genre == "MatchArm":
        arm = ancestor(node, {"match_arm"})
        pattern = arm and arm.child_by_field_name("pattern")
        guard = pattern and pattern.child_by_field_name("condition")
        if pattern is None or (guard and re.search(rb"\blet\b", guard.text)):
            return None
        start, end = (guard.start_byte, guard.end_byte) if guard else (pattern.end_byte, pattern.end_byte)
        return start, end, "guard" if guard else "arm", "", b""
    else:
        return find_field(ancestor(node, {"field_initializer", "shorthand_field_initializer"}))
    return node.start_byte, node.end_byte, "value", "", mutant.apply(source, node.start_byte, node.end_byte)


def find_field(field):
    """Returns the same as `find_edit` for a deleted field of a struct expression: its value is that of the base."""
    base = field and next((node for node in field.parent.children if node.type == "base_field_initializer"), None)
    if base is None:
        return None
    text = base.children[-1].text
    if text == b"Default::default()":
        text = b"<" + field.parent.parent.child_by_field_name("name").text + b">::default()"
    if field.type == "field_initializer":
        value, name = field.child_by_field_name("value"), field.child_by_field_name("field").text
        return value.start_byte, value.end_byte, "value", "", b"(" + text + b")." + name
    name = field.children[-1].text
    return field.start_byte, field.end_byte, "field", name.decode(), b"(" + text + b")." + name


def region_of(span, regions):
    """Returns the smallest region that contains the span of an error, or None."""
    containing = [r for r in regions if r[0] <= span["byte_start"] and span["byte_end"] <= r[1]]
    return min(containing, key=lambda region: region[1] - region[0], default=None)


def write(path, content):
    """Writes a file if its content changes. Its new modification time makes cargo recompile it."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Switches:
    """The sources of a crate in a directory, and the mutants that are switched in them."""

    def __init__(self, crate, tree, parser, mutants):
        self.crate, self.tree, self.parser = crate, tree, parser
        paths = sorted((tree / "crates" / crate / "src").rglob("*.rs"))
        self.sources = {str(path.relative_to(tree)): path.read_bytes() for path in paths}
        self.roots = {path: parser.parse(source).root_node for path, source in self.sources.items()}
        self.consts = {path: list(const_functions(root)) for path, root in self.roots.items()}
        # The functions that are called where constants are evaluated; mutants in them have no switch.
        self.const_names = set()
        self.mutants = [Mutant(number, m, self.sources[m["file"]]) for number, m in enumerate(mutants, 1)]
        self.regions = {}

    def switched(self):
        return [mutant for mutant in self.mutants if mutant.has_switch and mutant.result is None]

    def is_constant(self, mutant):
        node = self.roots[mutant.file].descendant_for_byte_range(mutant.start, max(mutant.start, mutant.end - 1))
        node = ancestor(node, CONSTANT | {"function_item"})
        if node is None or node.type != "function_item":
            return node is not None
        return function_name(node) in self.const_names

    def write(self):
        """Writes the sources with the switches, and records the regions of each file."""
        edits = {path: {} for path in self.sources}
        for mutant in self.switched():
            source, root = self.sources[mutant.file], self.roots[mutant.file]
            found = None if self.is_constant(mutant) else find_edit(mutant, source, root)
            if found is None:
                mutant.has_switch = False
            else:
                edit = edits[mutant.file].setdefault(found[:3], Edit(*found[:4]))
                edit.variants.append((mutant.number, found[4]))
        for path, source in self.sources.items():
            consts = [Edit(a, b, "const") for a, b, name in self.consts[path] if name not in self.const_names]
            output, self.regions[path] = emit(source, [*edits[path].values(), *consts])
            if path == f"crates/{self.crate}/src/lib.rs":
                output += SWITCH.encode()
            write(self.tree / path, output)

    def write_alone(self, mutant):
        """Writes the original sources with only one change."""
        for path, source in self.sources.items():
            write(self.tree / path, mutant.apply(source) if path == mutant.file else source)

    def restore(self):
        """Writes the original sources."""
        for path, source in self.sources.items():
            write(self.tree / path, source)

    def remove_causes(self, errors):
        """Removes the switches of the mutants that cause errors; returns whether there are any."""
        mutants = {mutant.number: mutant for mutant in self.switched()}
        before = len(mutants), len(self.const_names)
        unknown = []
        for error in errors:
            if self.must_be_const(error["message"]):
                continue
            spans = sorted(filter(None, map(self.own_span, error["spans"])), key=lambda span: not span["is_primary"])
            concerned = [(span, region_of(span, self.regions[span["file_name"]])) for span in spans]
            span, region = next(((span, region) for span, region in concerned if region), (None, None))
            if region is None:
                unknown += spans[:1]
                continue
            _, _, numbers, kind = region
            code = (error["code"] or {}).get("code")
            # These errors do not depend on the switch: the mutant does not compile without it either.
            is_certain = span["is_primary"] and (kind == "body" or (kind == "value" and code in OPERAND_ERRORS))
            for number in numbers:
                if number in mutants:
                    mutants[number].has_switch = False
                    mutants[number].result = "unviable" if is_certain else None
        if (len(self.switched()), len(self.const_names)) != before:
            return True
        for span in unknown:
            for number in self.numbers_near(span):
                if number in mutants:
                    mutants[number].has_switch = False
        return len(self.switched()) < before[0]

    def must_be_const(self, message):
        """Keeps `const` on the function that the message reports as not const; returns whether there is one."""
        match = re.search(r"non-const (?:associated )?(?:function|method) `(.+?)`", message)
        if not match:
            return False
        all_names = {name for consts in self.consts.values() for _, _, name in consts}
        path = bare(match[1])
        name = path.split("::")[-1]
        found = {path, name} & all_names or {other for other in all_names if other.endswith(f"::{name}")}
        self.const_names |= found
        return bool(found)

    def own_span(self, span):
        """Returns the span, or that of the macro call that it comes from, if it is in a file of this crate."""
        while span["file_name"] not in self.sources and span.get("expansion"):
            span = dict(span["expansion"]["span"], is_primary=span["is_primary"])
        return span if span["file_name"] in self.sources else None

    def numbers_near(self, span):
        """Returns the mutants in the function of an error that is outside of all regions, or in its file."""
        regions = self.regions[span["file_name"]]
        root = self.parser.parse((self.tree / span["file_name"]).read_bytes()).root_node
        node = root.descendant_for_byte_range(span["byte_start"], max(span["byte_start"], span["byte_end"] - 1))
        function = ancestor(node, {"function_item"}) or root
        inside = [r for r in regions if function.start_byte <= r[0] and r[1] <= function.end_byte]
        return {number for _, _, numbers, _ in inside or regions for number in numbers}
