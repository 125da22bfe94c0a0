"""No loop of what the simulator plays iterates over a set, because the order of strings in it differs by process."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "odradek"
NOT_PLAYED = {"cli", "lab", "page", "pipelines", "runtime", "spark", "stores", "supervisor", "texts", "values"}
"""The rooms that no simulation plays."""
_SET = re.compile(r"(set|frozenset|Set|AbstractSet|MutableSet)\[(?!int\]|asyncio\.Task\b|tuple\[int)")


def _annotated_sets(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """The names of a module that are annotated as sets, but those of integers and tasks, whose hash is their number."""
    named = [(ast.unparse(node.target), node.annotation) for node in nodes if isinstance(node, ast.AnnAssign)]
    named += [(node.arg, node.annotation) for node in nodes if isinstance(node, ast.arg) and node.annotation]
    return frozenset(name for name, annotation in named if _SET.match(ast.unparse(annotation).strip("'")))


def _is_set(node: ast.AST, annotated: frozenset[str] = frozenset()) -> bool:
    """Whether an expression is a set by its look: its order differs between processes if it has strings."""
    match node:
        case ast.Name() | ast.Attribute() if ast.unparse(node) in annotated:
            return True
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(attr="union" | "difference" | "intersection" | "symmetric_difference")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return any(
                _is_set(each) or ast.unparse(getattr(each, "func", each)).endswith(".keys") for each in (left, right)
            )
    return False


def _iterated(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield what loops, comprehensions and `list`, `tuple`, `iter` iterate over, unless the order cannot matter."""
    unordered = {"sorted", "set", "frozenset", "any", "all", "sum", "min", "max"}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args]
    free = {id(call.args[0]) for call in calls if ast.unparse(call.func) in unordered}
    for node in nodes:
        if isinstance(node, ast.For | ast.AsyncFor):
            yield node.iter
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp) and id(node) not in free:
            yield from (each.iter for each in node.generators)
    yield from (call.args[0] for call in calls if ast.unparse(call.func) in {"list", "tuple", "iter", "enumerate"})


def test_no_loop_iterates_over_a_set_whose_order_depends_on_the_process():
    """A loop over a set is sorted, or goes through the dictionary that the set was made of."""
    found = [
        f"{path.relative_to(SOURCE)}:{iterated.lineno} {ast.unparse(iterated)}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in NOT_PLAYED
        for iterated in _sets_iterated(path.read_text())
    ]
    assert not found


def _sets_iterated(code: str) -> list[ast.expr]:
    """The sets that loops iterate over, by their look or by an annotation in the same function or of `self`."""
    nodes = list(ast.walk(ast.parse(code)))
    attributes = frozenset(name for name in _annotated_sets(nodes) if "." in name)
    found = [each for each in _iterated(nodes) if _is_set(each, attributes)]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [each for each in ast.walk(node) if not isinstance(each, ast.DictComp)]
            names = _annotated_sets(body)
            found += [each for each in _iterated(body) if isinstance(each, ast.Name) and _is_set(each, names)]
    return found


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("for x in {a, b}: f(x)", True),
        ("[f(x) for x in one.keys() - other.keys()]", True),
        ("list(set(a))", True),
        ("sorted(f(x) for x in {a, b})", False),
        ("for x in one.keys(): f(x)", False),
        ("self.names: set[str] = made()\nfor x in self.names: f(x)", True),
        ("def g(names: frozenset[str]): return [x for x in names]", True),
        ("def g(ids: set[int]): return [x for x in ids]", False),
    ],
)
def test_a_loop_over_a_set_is_recognised(code: str, is_found: bool):
    assert bool(_sets_iterated(code)) is is_found
