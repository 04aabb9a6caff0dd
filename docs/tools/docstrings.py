"""How the site reads annotations and docstrings, where Markdown's reading differs from Python's."""

import ast
import re

import griffe


def escaped(docstring: str) -> str:
    """With asterisks that are mathematics; code, indented or between backticks, stays as it is."""
    pieces = re.split(r"(`[^`]*`|^    .*$)", docstring, flags=re.MULTILINE)
    pieces[::2] = [piece.replace("*", r"\*") for piece in pieces[::2]]
    return "".join(pieces)


class AsWritten(griffe.Extension):
    """Shapes stay in quotes: `Float[Array, "n 3"]` holds no names; and see `escaped`."""

    def on_function_instance(self, *, node: ast.AST, func: griffe.Function, **_) -> None:
        """Parameters and what is returned."""
        if func.docstring:
            func.docstring.value = escaped(func.docstring.value)
        if not isinstance(node, ast.FunctionDef):
            return
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None:
                func.parameters[argument.arg].annotation = _as_written(argument.annotation, func)
        func.returns = _as_written(node.returns, func)

    def on_attribute_instance(self, *, node: ast.AST, attr: griffe.Attribute, **_) -> None:
        """Fields."""
        if isinstance(node, ast.AnnAssign):
            attr.annotation = _as_written(node.annotation, attr)


def _as_written(annotation: ast.expr | None, of: griffe.Object) -> griffe.Expr | None:
    return griffe.safe_get_expression(annotation, of.parent, parse_strings=False)
