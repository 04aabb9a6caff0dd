"""Names of all methods and their default candidates, for the help of commands."""

import math
import shlex
import textwrap

from everlight.continual.registry import METHODS, Method, Needs

WIDTH = 78
INDENT = "  "
UNBROKEN = "\N{NO-BREAK SPACE}"


def list_methods() -> str:
    """Return all names of methods, and their candidates in the form that options take."""
    names = ", ".join(shlex.quote(name).replace(" ", UNBROKEN) for name in METHODS)
    lines = textwrap.wrap(names, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    tuned = [method for method in METHODS.values() if method.hyperparameters]
    width = max(len(_candidates(method)) for method in tuned)
    rows = [
        f"{INDENT}{_candidates(method):<{width}}{INDENT}{hyperparameter_name(method)}"
        for method in tuned
    ]
    return "\n".join(
        [
            "Methods:",
            *(line.replace(UNBROKEN, " ") for line in lines),
            "",
            "Values tried for each hyper-parameter, as --hyperparameters takes them:",
            *rows,
        ]
    )


def hyperparameter_name(method: Method) -> str:
    """Return the factory's argument that a method's hyper-parameter fills."""
    mark = math.nan
    given = method.given(Needs(tasks=1, classes=1, exemplars_per_class=1, hyperparameter=mark))
    return next(name for name, value in given.items() if value is mark)


def _candidates(method: Method) -> str:
    return shlex.quote(f"{method.name}={','.join(f'{each:g}' for each in method.hyperparameters)}")
