"""Run a plan on all devices in one process, and compare with the target."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.numpy import block_at, reduce_blocks, run_steps, stacked
from redist.errors import BackendError, ProofError
from redist.types.dtypes import dtype_name, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.collectives.plan import Plan
    from redist.types.layout import Layout

__all__ = ["assemble", "check_block", "check_blocks", "scatter", "simulate"]


def simulate(
    plan: Plan, array: NDArray[Any] | Mapping[int, NDArray[Any]], check: bool = True
) -> dict[int, NDArray[Any]]:
    """Run a plan with the NumPy reference semantics; returns {device id: block} of the target's mesh.

    `array` is the global array (for a partial source, the value its contributions reduce to: they are
    made up, and differ from device to device), or {device id: block}.
    With `check`, raises ProofError naming the first element of a block that is not the target's.
    Floating-point sums are compared to rounding, everything else bit by bit.
    Raises BackendError for an array of another shape or dtype, TypingError for an ill-typed plan.
    """
    source = plan.source
    if isinstance(array, Mapping):
        given = _given_blocks(source, array)
        value = assemble(source, given) if check else None
    else:
        value = np.asarray(array)
        _check_array(source, value)
        given = scatter(source, value)
    blocks = stacked([given[device] for device in source.mesh.device_ids], source)
    made, final = run_steps(blocks, plan.steps, source)
    result = {device: np.array(block_at(made, p)) for p, device in enumerate(final.mesh.device_ids)}
    if check:
        assert value is not None
        check_blocks(plan, value, result)
    return result


def scatter(layout: Layout, array: NDArray[Any], seed: int = 0) -> dict[int, NDArray[Any]]:
    """{device id: block} of a global array. For a partial layout, contributions that reduce to it."""
    starts, stops = layout.boxes()
    boxes: list[tuple[Any, ...]] = [  # with an ellipsis, so that blocks of rank 0 are arrays too
        (*(slice(a, b) for a, b in zip(lower, upper, strict=True)), ...)
        for lower, upper in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    count = layout.mesh.count(layout.partial_axes)
    if count == 1 or layout.partial is None:
        return {device: array[box].copy() for device, box in zip(layout.mesh.device_ids, boxes, strict=True)}
    shares = [share.astype(array.dtype) for share in _contributions(array, count, layout.partial.reduction, seed)]
    which = layout.mesh.index(layout.partial_axes)
    return {
        device: shares[int(which[p])][box].copy()
        for p, (device, box) in enumerate(zip(layout.mesh.device_ids, boxes, strict=True))
    }


def _contributions(array: NDArray[Any], count: int, reduction: str, seed: int) -> list[NDArray[Any]]:
    """`count` arrays that reduce to `array`, all of them different where the dtype allows."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, count, size=array.shape)
    if array.dtype == bool:  # any or all of the contributions
        neutral = reduction in ("min", "prod")
        tossed = [rng.integers(0, 2, size=array.shape) == 1 for _ in range(count)]
        return [np.where((owner == c) | coin, array, neutral) for c, coin in enumerate(tossed)]
    small = [rng.integers(1, 5, size=array.shape) for _ in range(count - 1)]
    match reduction:
        case "sum":
            shares = [s.astype(array.dtype) for s in small]
            rest = array
            for share in shares:
                rest = rest - share
            return [*shares, rest]
        case "prod":
            signs = [np.where(s % 2 == 0, 1, -1).astype(array.dtype) for s in small]
            if np.issubdtype(array.dtype, np.unsignedinteger):
                signs = [np.ones_like(array) for _ in small]
            rest = array
            for sign in signs:
                rest = rest * sign
            return [*signs, rest]
        case _:
            lowered = [_toward(array, s, reduction) for s in small]
            shares = [*lowered, lowered[0]]
            return [np.where(owner == c, array, share) for c, share in enumerate(shares)]


def _toward(array: NDArray[Any], amount: NDArray[Any], reduction: str) -> NDArray[Any]:
    """Values that do not win against `array` under max or min."""
    step = amount.astype(array.dtype)  # where integers wrap around, `array` itself
    return np.minimum(array, array - step) if reduction == "max" else np.maximum(array, array + step)


def assemble(layout: Layout, blocks: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
    """The global array that {device id: block} stands for; partial contributions are reduced.

    Raises BackendError where replicas disagree.
    """
    starts, stops = layout.boxes()
    dtype = next(iter(blocks.values())).dtype if blocks else numpy_dtype(layout.dtype)
    count = layout.mesh.count(layout.partial_axes)
    which = layout.mesh.index(layout.partial_axes)
    shares = [np.zeros(layout.shape, dtype=dtype) for _ in range(count)]
    seen = [np.zeros(layout.shape, dtype=bool) for _ in range(count)]
    for p, device in enumerate(layout.mesh.device_ids):
        box = tuple(slice(a, b) for a, b in zip(starts[p].tolist(), stops[p].tolist(), strict=True))
        share, known = shares[int(which[p])], seen[int(which[p])]
        differing = known[box] & ~_equal(share[box], blocks[device])
        if differing.any():
            raise BackendError(
                f"{layout.mesh.describe_device(device)} holds a block that differs from its replicas in "
                f"{int(differing.sum())} elements"
            )
        share[box] = blocks[device]
        known[box] = True
    if layout.partial is None or count == 1:
        return shares[0]
    return reduce_blocks(layout.partial.reduction, shares)


def _equal(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = np.asarray(a == b)
    return same | ((a != a) & (b != b))  # noqa: PLR0124 - NaN equals NaN here


def _check_array(source: Layout, array: NDArray[Any]) -> None:
    if array.shape != source.shape or dtype_name(array.dtype) != source.dtype:
        raise BackendError(
            f"the plan starts from {source}, and the array is {dtype_name(array.dtype)}{list(array.shape)}; give an "
            "array of the global shape and dtype, or {device id: block}"
        )


def _given_blocks(source: Layout, blocks: Mapping[int, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    absent = sorted(set(source.mesh.device_ids) - set(blocks))
    stray = sorted(set(blocks) - set(source.mesh.device_ids))
    if absent or stray:
        raise BackendError(
            f"blocks are missing for devices {absent} and given for {stray}, which are not in mesh {source.mesh}"
        )
    starts, stops = source.boxes()
    problems: list[str] = []
    for p, device in enumerate(source.mesh.device_ids):
        shape = tuple((stops[p] - starts[p]).tolist())
        block = blocks[device]
        if block.shape != shape or dtype_name(block.dtype) != source.dtype:
            problems.append(
                f"device {device} has {dtype_name(block.dtype)}{list(block.shape)}, not {source.dtype}{list(shape)}"
            )
    if problems:
        raise BackendError(f"blocks do not fit {source}: {'; '.join(problems)}")
    return {device: np.asarray(blocks[device]) for device in source.mesh.device_ids}


def check_blocks(plan: Plan, value: NDArray[Any], result: Mapping[int, NDArray[Any]]) -> None:
    """Compare {device id: block}, whatever computed them, with what the target makes of the global array.

    Raises ProofError naming the first element that differs.
    """
    target = plan.target
    if set(result) != set(target.mesh.device_ids):
        raise ProofError(
            f"the plan ends on devices {sorted(result)}, the target is on {sorted(target.mesh.device_ids)}"
        )
    starts, stops = target.boxes()
    inexact = _inexact(plan)
    kept = target.mesh.count(target.partial_axes)
    expected_value = value
    if kept > 1:
        shapes_only = {device: result[device] for device in target.mesh.device_ids}
        _check_shapes(plan, shapes_only)
        total = assemble(target, shapes_only)
        _compare(plan, "the reduced result", total, value, inexact, (0,) * target.rank)
        return
    _check_shapes(plan, result)
    for p, device in enumerate(target.mesh.device_ids):
        lower = starts[p].tolist()
        box = tuple(slice(a, b) for a, b in zip(lower, stops[p].tolist(), strict=True))
        _compare(plan, target.mesh.describe_device(device), result[device], expected_value[box], inexact, lower)


def check_block(plan: Plan, device: int, block: NDArray[Any], wanted: NDArray[Any]) -> None:
    """Compare one device's (reduced) block with what the target makes of the global array there.

    Raises ProofError naming the first element that differs.
    """
    origin = [part.start for part in plan.target.box(device)]
    _compare(plan, plan.target.mesh.describe_device(device), block, wanted, _inexact(plan), origin)


def _inexact(plan: Plan) -> bool:
    return plan.source.partial is not None and plan.source.partial.reduction in ("sum", "prod")


def _check_shapes(plan: Plan, result: Mapping[int, NDArray[Any]]) -> None:
    starts, stops = plan.target.boxes()
    for p, device in enumerate(plan.target.mesh.device_ids):
        shape = tuple((stops[p] - starts[p]).tolist())
        if result[device].shape != shape:
            raise ProofError(
                f"{plan.target.mesh.describe_device(device)} ends with a block of shape {result[device].shape}, the "
                f"target's is {shape}"
            )


def _compare(plan: Plan, where: str, got: NDArray[Any], want: NDArray[Any], inexact: bool, origin: Any) -> None:
    same = _equal(got, want)
    if inexact and not np.issubdtype(want.dtype, np.integer) and want.dtype != bool:
        wide = np.complex128 if np.issubdtype(want.dtype, np.complexfloating) else np.float64
        scale = np.abs(want.astype(wide)) + 32
        with np.errstate(invalid="ignore"):  # infinities of one sign, which are equal already
            same = same | (np.abs(got.astype(wide) - want.astype(wide)) <= scale * 16 * _epsilon(want.dtype))
    if same.all():
        return
    index = tuple(int(n) for n in np.argwhere(~same)[0])
    place = tuple(n + o for n, o in zip(index, origin, strict=True))
    raise ProofError(
        f"the plan from {plan.source} to {plan.target} is wrong: {where}, local index {index}, wants "
        f"{want[index]} (global index {place}) and gets {got[index]}; {int((~same).sum())} elements of its block differ"
    )


def _epsilon(dtype: np.dtype[Any]) -> float:
    """Relative spacing of a floating-point dtype; 0 for integers, those of ml_dtypes among them."""
    import ml_dtypes

    finders: tuple[Any, ...] = (np.finfo, ml_dtypes.finfo)
    for finfo in finders:
        with contextlib.suppress(ValueError):
            return float(finfo(dtype).eps)
    return 0.0
