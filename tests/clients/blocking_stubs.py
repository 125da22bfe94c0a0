"""Writes the types of the blocking clients, `odradek/clients/blocking/__init__.pyi`, from the asynchronous classes.

    python tests/clients/blocking_stubs.py        after a change of the signature of a client's public method

A test compares the file with `stub`. Docstrings are left out: at runtime the methods have them.
"""

import ast
import builtins
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).parents[2] / "src/odradek/clients/blocking/__init__.pyi"
CLASSES: Final = {
    "GenerationReader": "odradek.clients.admin.group_records",
    "Admin": "odradek.clients.admin.admin",
    "Consumer": "odradek.clients.consumer.consumer",
    "Producer": "odradek.clients.producer.producer",
    "Transaction": "odradek.clients.producer.transactions.transactions",
    "SimpleConsumer": "odradek.clients.simple_consumer",
    "KafkaStream": "odradek.clients.zookeeper_consumer.streams",
    "ZookeeperConsumer": "odradek.clients.zookeeper_consumer.consumer",
}
INNER: Final = {"GenerationReader", "KafkaStream", "Transaction"}
"""Classes that methods of the clients return."""
VALUES: Final = {"SentRows": "odradek.clients.producer.arrow"}
"""Named tuples with futures."""
SPECIAL: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
_METHOD: Final = re.compile(r"= _of_cluster\((\w+)\.(\w+)\)$")
_HEAD: Final = '''"""The types of the blocking clients: written by tests/clients/blocking_stubs.py, never by hand."""
'''


class _Blocking(ast.NodeTransformer):
    """Replaces asynchronous types, and notes the names that the annotations use."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.names.add(node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if ast.unparse(node) == "asyncio.Future":
            self.names.add("concurrent.futures")
            return ast.parse("concurrent.futures.Future", mode="eval").body
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "AsyncIterator":
            self.names.add("Iterator")
            return ast.Subscript(ast.Name("Iterator"), self.visit(node.slice))
        return self.generic_visit(node)


def stub() -> str:
    """Return the file's text."""
    imports: dict[str, str] = {}
    bodies = [_class(name, module, imports) for name, module in (VALUES | CLASSES).items()]
    names = sorted(set(CLASSES) - INNER)
    text = "\n".join([_HEAD, *sorted(set(imports.values())), "", *bodies, f"__all__ = {names!r}"])
    for arguments in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *arguments, "--stdin-filename", str(PATH), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _class(name: str, module_name: str, imports: dict[str, str]) -> str:
    tree = ast.parse(inspect.getsource(import_module(module_name)))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    blocking = _Blocking()
    body: list[ast.stmt] = []
    for node in found.body:
        if isinstance(node, ast.Assign) and (function := _METHOD.search(ast.unparse(node))):
            body.append(_function_of_module(function[1], function[2], imports))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            not node.name.startswith("_") or node.name in SPECIAL or node.name == "__init__"
        ):
            body.append(_method(node, blocking))
            if node.name == "__init__":
                body += _attributes(node, blocking)
    if name in VALUES:
        body = [_field(each, blocking) for each in found.body if isinstance(each, ast.AnnAssign)]
        blocking.names.add("NamedTuple")
    bases: list[ast.expr] = [ast.Name("NamedTuple")] if name in VALUES else []
    made = ast.ClassDef(name=name, bases=bases, keywords=[], body=body, decorator_list=[])
    _import_names(blocking.names - CLASSES.keys() - VALUES.keys(), module_name, tree, imports)
    return ast.unparse(ast.fix_missing_locations(made))


def _function_of_module(module: str, name: str, imports: dict[str, str]) -> ast.FunctionDef:
    """Return the method that a function of a module of `odradek.clients.admin` is; its first parameter is `self`."""
    module_name = f"odradek.clients.admin.{module}"
    tree = ast.parse(inspect.getsource(import_module(module_name)))
    (node,) = (each for each in tree.body if isinstance(each, ast.AsyncFunctionDef) and each.name == name)
    node.args.args[0] = ast.arg("self")
    blocking = _Blocking()
    method = _method(node, blocking)
    _import_names(blocking.names, module_name, tree, imports)
    return method


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, blocking: _Blocking) -> ast.FunctionDef:
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = blocking.visit(argument.annotation)
    arguments.defaults = [_default(each) for each in arguments.defaults]
    arguments.kw_defaults = [each and _default(each) for each in arguments.kw_defaults]
    return ast.FunctionDef(
        name=SPECIAL.get(node.name, node.name),
        args=arguments,
        body=[ast.Expr(ast.Constant(...))],
        decorator_list=[each for each in node.decorator_list if ast.unparse(each) in {"property", "staticmethod"}],
        returns=blocking.visit(node.returns) if node.returns is not None else None,
    )


def _attributes(init: ast.FunctionDef | ast.AsyncFunctionDef, blocking: _Blocking) -> list[ast.stmt]:
    """Return the public attributes that `__init__` declares."""
    return [
        ast.AnnAssign(target=ast.Name(each.target.attr), annotation=blocking.visit(each.annotation), simple=1)
        for each in ast.walk(init)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Attribute)
        if not each.target.attr.startswith("_")
    ]


def _field(node: ast.AnnAssign, blocking: _Blocking) -> ast.AnnAssign:
    return ast.AnnAssign(target=node.target, annotation=blocking.visit(node.annotation), simple=1)


def _default(node: ast.expr) -> ast.expr:
    return node if isinstance(node, ast.Constant) else ast.Constant(...)


def _import_names(names: set[str], module_name: str, tree: ast.Module, imports: dict[str, str]) -> None:
    """Add the imports of `names` as the module has them; names of the module itself are imported from it."""
    homes: dict[str, str] = {
        "Iterator": "from collections.abc import Iterator",
        "concurrent.futures": "import concurrent.futures",
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            homes |= {each.name: f"from {_home(node.module, each.name)} import {each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            homes |= {each.asname or each.name: f"import {ast.unparse(each)}" for each in node.names}
    own = {each.id for node in tree.body for each in ast.walk(node) if isinstance(each, ast.Name)}
    for name in names:
        if name in homes:
            imports[name] = homes[name]
        elif name in own and not hasattr(builtins, name):
            imports[name] = f"from {module_name} import {name}"


def _home(module: str | None, name: str) -> str:
    """Return the module that defines a class of ours, rather than one that passes it on."""
    found = getattr(import_module(module or ""), name, None) if (module or "").startswith("odradek") else None
    return found.__module__ if isinstance(found, type) else module or ""


if __name__ == "__main__":
    PATH.write_text(stub())
