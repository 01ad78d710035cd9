"""Which elements of its operands an operation reads for an element of a result, as formulas over indices.

Written from what the operations mean, without the library: `reads_of` gives, for each group of operands that
are read together, a formula over the indices of those operands and of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

Shape = Sequence[int]
Index = Sequence[Any]


@dataclass(frozen=True)
class Read:
    """For result `result`, the operands `operands` are read together where `related(result index, operand indices)`."""

    result: int
    operands: tuple[int, ...]
    related: Callable[[Index, Sequence[Index]], Any]
    local: bool = True
    """Whether a tile's formula is this one again, on the tile's shapes."""


def linear(shape: Shape, index: Index) -> Any:
    """The row-major number of an element."""
    number: Any = 0
    for n, i in zip(shape, index, strict=True):
        number = number * n + i
    return number


def matched(pairs: Sequence[tuple[int, int]]) -> Callable[[Index, Sequence[Index]], Any]:
    """Dimensions (of the result, of every operand) with one index."""
    return lambda res, ops: z3.And([res[e] == op[d] for op in ops for e, d in pairs])


def _broadcast(shapes: Sequence[Shape], out: Shape) -> Read:
    def related(res: Index, ops: Sequence[Index]) -> Any:
        pairs = zip(shapes, ops, strict=True)
        return z3.And([res[d] == op[d] for shape, op in pairs if shape for d in range(len(out)) if shape[d] != 1])

    return Read(0, tuple(range(len(shapes))), related)


def _dot(params: Mapping[str, Any], a: Shape, b: Shape) -> Read:
    (a_sum, b_sum), (a_batch, b_batch) = params["dimension_numbers"]
    a_free = [d for d in range(len(a)) if d not in {*a_sum, *a_batch}]
    b_free = [d for d in range(len(b)) if d not in {*b_sum, *b_batch}]

    def related(res: Index, ops: Sequence[Index]) -> Any:
        x, y = ops
        batch = len(a_batch)
        terms = [x[i] == y[j] for i, j in zip(a_sum, b_sum, strict=True)]
        terms += [z3.And(res[n] == x[i], res[n] == y[j]) for n, (i, j) in enumerate(zip(a_batch, b_batch, strict=True))]
        terms += [res[batch + n] == x[d] for n, d in enumerate(a_free)]
        terms += [res[batch + len(a_free) + n] == y[d] for n, d in enumerate(b_free)]
        return z3.And(terms)

    return Read(0, (0, 1), related)


def _convolution(params: Mapping[str, Any], a: Shape, b: Shape) -> Read:
    lhs, rhs, out = (getattr(params["dimension_numbers"], f"{side}_spec") for side in ("lhs", "rhs", "out"))
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]

    def related(res: Index, ops: Sequence[Index]) -> Any:
        x, w = ops
        feature, per_group = res[out[1]], b[rhs[0]] // groups
        terms = [w[rhs[0]] == feature, x[lhs[1]] == (feature / per_group) * b[rhs[1]] + w[rhs[1]]]
        if batch_groups > 1:
            block = a[lhs[0]] // batch_groups
            terms = [w[rhs[0]] == feature, x[lhs[1]] == w[rhs[1]]]
            terms.append(x[lhs[0]] == (feature / (b[rhs[0]] // batch_groups)) * block + res[out[0]])
        else:
            terms.append(x[lhs[0]] == res[out[0]])
        for n, (low, _) in enumerate(params["padding"]):
            at = res[out[2 + n]] * params["window_strides"][n] + w[rhs[2 + n]] * params["rhs_dilation"][n] - low
            terms.append(x[lhs[2 + n]] * params["lhs_dilation"][n] == at)
        return z3.And(terms)

    # A tile of groups has another number of groups.
    return Read(0, (0, 1), related, local=groups == batch_groups == 1)


def _windows(params: Mapping[str, Any], name: str) -> list[Read]:
    def related(res: Index, ops: Sequence[Index]) -> Any:
        terms: list[Any] = []
        for op in ops:
            for d, width in enumerate(params["window_dimensions"]):
                inside = z3.FreshInt("w")
                step = params.get("window_dilation", [1] * len(res))[d]
                base = params.get("base_dilation", [1] * len(res))[d]
                start = res[d] * params["window_strides"][d] - params["padding"][d][0]
                terms += [inside >= 0, inside < width, op[d] * base == start + inside * step]
        return z3.And(terms)

    if name == "select_and_scatter_add":  # its first operand has the windows' shape, its second the result's
        return [
            Read(0, (0,), lambda res, ops: related(ops[0], [res])),
            Read(0, (1, 0), lambda res, ops: related(ops[1], [res, ops[0]])),
        ]
    return [Read(0, (k,), related) for k in ((0, 1) if name == "select_and_gather_add" else (0,))]


def _starts(count: int, sizes: Shape, whole: Shape) -> tuple[list[Any], list[Any]]:
    """Positions that a window may have, and what is known of them."""
    starts = [z3.FreshInt("s") for _ in range(count)]
    return starts, [z3.And(s >= 0, s <= n - k) for s, k, n in zip(starts, sizes, whole, strict=True)]


def _gather(params: Mapping[str, Any], operand: Shape, out: Shape) -> list[Read]:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [d for d in range(len(operand)) if d not in gone]
    batch = [e for e in range(len(out)) if e not in numbers.offset_dims]

    def related(res: Index, ops: Sequence[Index]) -> Any:
        x, i = ops
        terms = [i[n] == res[e] for n, e in enumerate(batch)]
        starts, known = _starts(len(operand), sizes, operand)
        terms += known
        terms += [starts[d] == 0 for d in range(len(operand)) if d not in numbers.start_index_map]
        pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
        terms += [x[d] == i[n] for d, n in pairs]
        terms += [x[d] == starts[d] for d in numbers.collapsed_slice_dims]
        terms += [x[d] == starts[d] + res[e] for d, e in zip(windows, numbers.offset_dims, strict=True)]
        return z3.And(terms)

    return [Read(0, (0, 1), related, local=False)]


def _scatter(params: Mapping[str, Any], operand: Shape, updates: Shape) -> list[Read]:
    numbers = params["dimension_numbers"]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = dict(zip([d for d in range(len(operand)) if d not in gone], numbers.update_window_dims, strict=True))
    batch = [e for e in range(len(updates)) if e not in numbers.update_window_dims]
    sizes = [updates[windows[d]] if d in windows else 1 for d in range(len(operand))]

    def related(res: Index, ops: Sequence[Index]) -> Any:
        i, u = ops
        terms = [i[n] == u[e] for n, e in enumerate(batch)]
        starts, known = _starts(len(operand), sizes, operand)
        terms += known
        terms += [starts[d] == 0 for d in range(len(operand)) if d not in numbers.scatter_dims_to_operand_dims]
        pairs = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        terms += [res[d] == i[n] for d, n in pairs]
        terms += [res[d] == starts[d] for d in numbers.inserted_window_dims]
        terms += [res[d] == starts[d] + u[e] for d, e in windows.items()]
        return z3.And(terms)

    same = [(d, d) for d in range(len(operand))]
    return [Read(0, (0,), matched(same)), Read(0, (1, 2), related, local=False)]


def _part(axis: int, start: int) -> Callable[[Index, Sequence[Index]], Any]:
    """An array and a part of it along an axis, the part first."""
    return lambda part, whole: z3.And([whole[0][d] == i + (start if d == axis else 0) for d, i in enumerate(part)])


def _swapped(related: Callable[[Index, Sequence[Index]], Any]) -> Callable[[Index, Sequence[Index]], Any]:
    return lambda res, ops: related(ops[0], [res])


def reads_of(
    name: str, params: Mapping[str, Any], ins: Sequence[Shape], outs: Sequence[Shape], family: str
) -> list[Read]:
    """The reads of an operation, none where this module does not know the primitive."""
    first = range(len(ins[0])) if ins else range(0)
    match name:
        case "transpose":
            return [Read(0, (0,), matched(list(enumerate(params["permutation"]))))]
        case "broadcast_in_dim":
            pairs = [(e, d) for d, e in enumerate(params["broadcast_dimensions"]) if ins[0][d] != 1]
            return [Read(0, (0,), matched(pairs))]
        case "reshape":
            order = params["dimensions"] or first
            read = [ins[0][d] for d in order]
            return [Read(0, (0,), lambda res, ops: linear(outs[0], res) == linear(read, [ops[0][d] for d in order]))]
        case "squeeze":
            kept = [d for d in first if d not in params["dimensions"]]
            return [Read(0, (0,), matched(list(enumerate(kept))))]
        case "slice":
            steps = params["strides"] or [1] * len(ins[0])
            begin = params["start_indices"]
            return [Read(0, (0,), lambda res, ops: z3.And([ops[0][d] == begin[d] + steps[d] * res[d] for d in first]))]
        case "pad":
            config = params["padding_config"]
            return [
                Read(
                    0,
                    (0,),
                    lambda res, ops: z3.And([ops[0][d] * (c[2] + 1) + c[0] == res[d] for d, c in enumerate(config)]),
                )
            ]
        case "rev":
            back, shape = params["dimensions"], ins[0]
            return [
                Read(
                    0,
                    (0,),
                    lambda res, ops: z3.And(
                        [ops[0][d] == (shape[d] - 1 - res[d] if d in back else res[d]) for d in first]
                    ),
                )
            ]
        case "tile":
            return [Read(0, (0,), lambda res, ops: z3.And([res[d] % ins[0][d] == ops[0][d] for d in first]))]
        case "concatenate":
            axis = params["dimension"]
            ends = [sum(shape[axis] for shape in ins[:k]) for k in range(len(ins))]
            return [Read(0, (k,), _swapped(_part(axis, end))) for k, end in enumerate(ends)]
        case "split":
            axis = params["axis"]
            ends = [sum(shape[axis] for shape in outs[:j]) for j in range(len(outs))]
            return [Read(j, (0,), _part(axis, end)) for j, end in enumerate(ends)]
        case "stack":
            axis = params["axis"]
            return [Read(0, (k,), matched([(d + (d >= axis), d) for d in first])) for k in range(len(ins))]
        case "unstack":
            axis = params["axis"]
            return [
                Read(j, (0,), matched([(d, d + (d >= axis)) for d in range(len(outs[0]))])) for j in range(len(outs))
            ]
        case "dot_general":
            return [_dot(params, *ins)]
        case "conv_general_dilated":
            return [_convolution(params, *ins)]
        case (
            "reduce_window_sum"
            | "reduce_window_max"
            | "reduce_window_min"
            | "reduce_window"
            | "select_and_scatter_add"
            | "select_and_gather_add"
        ):
            return _windows(params, name)
        case "gather":
            return _gather(params, ins[0], outs[0])
        case "dynamic_slice":
            starts, known = _starts(len(ins[0]), outs[0], ins[0])
            return [Read(0, (0,), lambda res, ops: z3.And(*known, *[ops[0][d] == starts[d] + res[d] for d in first]))]
        case "dynamic_update_slice":
            starts, known = _starts(len(ins[0]), ins[1], ins[0])
            update = Read(
                0, (1,), lambda res, ops: z3.And(*known, *[res[d] == starts[d] + ops[0][d] for d in first]), local=False
            )
            return [Read(0, (0,), matched([(d, d) for d in first])), update]
        case "cumsum" | "cumprod" | "cummax" | "cummin" | "cumlogsumexp":

            def before(res: Index, ops: Sequence[Index]) -> Any:
                apart = [ops[0][d] == res[d] for d in first if d != params["axis"]]
                at, here = ops[0][params["axis"]], res[params["axis"]]
                return z3.And(*apart, at >= here if params["reverse"] else at <= here)

            return [Read(0, (0,), before)]
        case "sort" | "top_k":
            axis = params["dimension"] if name == "sort" else params["axis"]
            return [
                Read(j, (k,), matched([(d, d) for d in first if d != axis]))
                for j in range(len(outs))
                for k in range(len(ins))
            ]
        case _ if name.startswith("scatter"):
            return _scatter(params, ins[0], ins[2])
        case _ if name.startswith(("reduce_", "arg")) and "axes" in params:
            kept = [d for d in first if d not in params["axes"]]
            return [Read(0, (0,), matched(list(enumerate(kept))))]
        case _ if (
            family == "elementwise" and outs[0] and all(len(s) in {0, len(outs[0])} for s in ins) and len(outs) == 1
        ):
            return [_broadcast(ins, outs[0])]
        case _ if family == "linear algebra":
            batch = len(ins[0]) - (1 if name in {"lu_pivots_to_permutation", "tridiagonal_solve"} else 2)
            across = {"triangular_solve": 1, "tridiagonal_solve": 3, "ormqr": 2}.get(name)
            pairs = [(d, d) for d in range(batch)]
            reads = [Read(j, (k,), matched(pairs)) for j in range(len(outs)) for k in range(len(ins)) if k != across]
            if across is not None:
                left = params.get("left_side", params.get("left", True))
                d = batch + 1 if left else batch
                reads.append(Read(0, (across,), matched([*pairs, (d, d)])))
            return reads
        case _:
            return []
