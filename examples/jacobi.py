"""Laplace's equation by Jacobi's iteration, for a plate whose borders are kept warm and cold, on a grid of ranks.

Each rank has a block in a file. In a pass it reads it, neighbours hand it borders as deep as many sweeps reach, and it
sweeps so often before it writes. `ooc.iterate` does so with an array in one file. Thakur 1995, figures 5.3 and 5.4.
"""

import tempfile
from functools import partial

import numpy as np

import oocarrays as ooc

SIZE, WAVES, PASSES, SWEEPS = 256, 16, 14, 64


def solution(size: int = SIZE, waves: int = WAVES) -> np.ndarray:
    """Return the exact solution that is so many half waves of a sine along each of the four borders."""
    x, m = np.linspace(0, 1, size), np.pi * waves
    decay = (np.exp(m * (x - 1)) - np.exp(-m * (x + 1))) / (1 - np.exp(-2 * m))  # sinh(m x) / sinh(m)
    one = np.outer(np.sin(m * x), decay)
    return one + one[:, ::-1] - one.T - one.T[::-1]


def swept(plate: ooc.LocalArrays, folder: str, passes=PASSES, sweeps=SWEEPS, **how) -> tuple[ooc.LocalArrays, list]:
    """A plate after so many passes of so many sweeps, in two stores in turn; and how much each pass changed it."""
    kernel, changes = partial(ooc.kernels.sweeps, count=sweeps), []
    for number in range(passes):
        after = ooc.map_slabs(kernel, plate, f"{folder}/{number % 2 + 1}", depth=sweeps, overwrite=True, **how).run()
        changes.append(max(np.abs(after.local(r)[...] - plate.local(r)[...]).max() for r in range(plate.ranks)))
        plate = after
    return plate, changes


def main(picture: str = "jacobi.png") -> None:
    """Find the inside of a plate from its borders."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    exact, layout = solution(), ooc.Layout.of((SIZE, SIZE), "(block, block)", ranks=4)
    with tempfile.TemporaryDirectory() as folder:
        plate = ooc.create_array(f"{folder}/0", shape=exact.shape, dtype="f8", layout=layout, placement="local")
        whole = ooc.create_array(f"{folder}/whole", shape=exact.shape, dtype="f8", chunks=(32, -1))
        plate[...] = whole[...] = exact - np.pad(exact[1:-1, 1:-1], 1)
        found, changes = swept(plate, folder, memory="64MiB")
        job = ooc.iterate(ooc.kernels.sweep, whole, f"{folder}/same", sweeps=PASSES * SWEEPS, memory="64MiB")
        print(found, job, f"the same bits: {np.array_equal(job.run(), found)}", sep="\n")
        print(f"off from the exact solution by {np.abs(found[...] - exact).max():.1e} at most")
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.imshow(found, cmap="coolwarm")
        right.semilogy(changes, ".-")
        right.set(title="residual: the most that changed", xlabel=f"pass of {SWEEPS} sweeps")
    figure.savefig(picture)
    print(f"the plate and its residuals: {picture}")


if __name__ == "__main__":
    main()
