"""A record of every use that a program makes of its random keys."""

from collections import defaultdict
from functools import partial

import jax
import numpy as np
from jax._src import source_info_util
from jax.extend.core import ClosedJaxpr, Literal

USES = {"random_bits": "bits", "random_split": "split", "random_fold_in": "fold_in"}


def scan_counts(params):
    """Return the numbers of constants and of carried arrays of a scan."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # The parameters have the structure of the arguments from jax 0.12 on.
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


class KeyUse:
    """Uses of keys by their words, and what was derived from them."""

    def __init__(self):
        self.uses = defaultdict(list)
        self.parents = {}
        self.wrapped = set()

    def record(self, kind, place, keys, data, derived):
        """Record the keys of one equation, all of its batch."""
        keys, data = np.asarray(keys).reshape(-1, np.shape(keys)[-1]), np.asarray(data).reshape(-1)
        count = max(len(keys), len(data))
        keys, data = np.broadcast_to(keys, (count, keys.shape[1])), np.broadcast_to(data, count)
        for key, value in zip(map(bytes, keys), data.tolist(), strict=True):
            self.uses[key].append((kind, place, value))
        if derived is not None:
            derived = np.asarray(derived).reshape(len(keys), -1, keys.shape[1])
            for key, children in zip(map(bytes, keys), derived, strict=True):
                self.parents.update(dict.fromkeys(map(bytes, children), key))

    def record_wrapped(self, keys):
        """Record keys that were made of words: the hashes of samples."""
        keys = np.asarray(keys)
        self.wrapped.update(map(bytes, keys.reshape(-1, keys.shape[-1])))

    def shared(self):
        """Return the consumers of every key that has two.

        A key has one kind of use: it is split, has numbers folded into it, or gives bits once. The
        hash of a sample is the same number again wherever that sample is looked at, by one line.
        """
        results = []
        for key, uses in self.uses.items():
            kinds, places = ({use[part] for use in uses} for part in (0, 1))
            hashed = self._is_hash(key)
            again = kinds == {"bits"} and len(uses) > 1 and not hashed
            if len(kinds) > 1 or again or (hashed and len(places) > 1):
                results.append(sorted(places))
            # One number may stand for one thing alone, but every driven part folds it in again.
        return results

    def _is_hash(self, key):
        while key is not None:
            if key in self.wrapped:
                return True
            key = self.parents.get(key)
        return False

    def instrumented(self, function):
        """Wrap the function, so that it records its uses of keys when it runs, compiled or not."""

        def call(*args):
            traced, shape = jax.make_jaxpr(function, return_shape=True)(*args)
            leaves = self._run(traced, jax.tree.leaves(args))
            return jax.tree.unflatten(jax.tree.structure(shape), leaves)

        return call

    def _run(self, program, values):
        closed = program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())
        jaxpr = closed.jaxpr
        known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        known |= dict(zip(jaxpr.invars, values, strict=True))
        for equation in jaxpr.eqns:
            inputs = [
                item.val if isinstance(item, Literal) else known[item] for item in equation.invars
            ]
            out = self._apply(equation, inputs)
            known |= dict(zip(equation.outvars, out, strict=True))
        return [item.val if isinstance(item, Literal) else known[item] for item in jaxpr.outvars]

    def _apply(self, equation, inputs):
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            return self._scan(params, inputs)
        if name == "while":
            return self._while(params, inputs)
        if name == "cond":
            branches = [lambda *a, b=branch: self._run(b, a) for branch in params["branches"]]
            return jax.lax.switch(inputs[0], branches, *inputs[1:])
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        if inner is not None:
            return self._run(inner, inputs)
        bound = equation.primitive.get_bind_params(params)
        out = equation.primitive.bind(*inputs, **bound)
        out = list(out) if equation.primitive.multiple_results else [out]
        self._observe(equation, inputs, out)
        return out

    def _scan(self, params, inputs):
        consts, carry = scan_counts(params)
        fixed, start, rows = (
            inputs[:consts],
            inputs[consts : consts + carry],
            inputs[consts + carry :],
        )

        def body(carried, row):
            out = self._run(params["jaxpr"], [*fixed, *carried, *row])
            return out[:carry], out[carry:]

        last, stacked = jax.lax.scan(
            body, start, rows, length=params["length"], reverse=params["reverse"]
        )
        return [*last, *stacked]

    def _while(self, params, inputs):
        tested, stepped = params["cond_nconsts"], params["body_nconsts"]
        for_test, for_step = inputs[:tested], inputs[tested : tested + stepped]
        return jax.lax.while_loop(
            lambda carried: self._run(params["cond_jaxpr"], [*for_test, *carried])[0],
            lambda carried: self._run(params["body_jaxpr"], [*for_step, *carried]),
            inputs[tested + stepped :],
        )

    def _observe(self, equation, inputs, out):
        name = equation.primitive.name
        if name == "random_wrap":
            jax.debug.callback(self.record_wrapped, jax.random.key_data(out[0]))
        if name not in USES:
            return
        place = source_info_util.summarize(equation.source_info)
        data = inputs[1] if name == "random_fold_in" else 0
        derived = None if name == "random_bits" else jax.random.key_data(out[0])
        tell = partial(self.record, USES[name], place)
        jax.debug.callback(tell, jax.random.key_data(inputs[0]), data, derived)
