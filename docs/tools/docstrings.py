"""Annotations and docstrings as the site shows them, where Markdown differs from Python."""

import ast
import re

import griffe


def escaped(docstring: str) -> str:
    """Return a docstring whose asterisks outside of code are escaped, as they are mathematics.

    Code is indented or stands between backticks.
    """
    pieces = re.split(r"(`[^`]*`|^    .*$)", docstring, flags=re.MULTILINE)
    pieces[::2] = [piece.replace("*", r"\*") for piece in pieces[::2]]
    return "".join(pieces)


class AsWritten(griffe.Extension):
    """Extension of griffe that shows annotations as written and escapes docstrings.

    In `Float[Array, "n 3"]` the shape is a text, in which griffe would look for names.
    """

    def on_function_instance(self, *, node: ast.AST, func: griffe.Function, **_) -> None:
        """Set the annotations of the parameters and of the returned value; escape the docstring."""
        if func.docstring:
            func.docstring.value = escaped(func.docstring.value)
        if not isinstance(node, ast.FunctionDef):
            return
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None:
                func.parameters[argument.arg].annotation = _as_written(argument.annotation, func)
        func.returns = _as_written(node.returns, func)

    def on_attribute_instance(self, *, node: ast.AST, attr: griffe.Attribute, **_) -> None:
        """Set the annotation of a field."""
        if isinstance(node, ast.AnnAssign):
            attr.annotation = _as_written(node.annotation, attr)


def _as_written(annotation: ast.expr | None, owner: griffe.Object) -> griffe.Expr | None:
    return griffe.safe_get_expression(annotation, owner.parent, parse_strings=False)
