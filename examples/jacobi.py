"""Laplace's equation by Jacobi's iteration: a plate whose borders are half hot and half cold, on a grid of ranks.

Each rank has a block in a file. In a pass it takes borders as deep as many sweeps reach, and sweeps so often before it
writes. `ooc.iterate` does so with an array in one file. Thakur 1995, figures 5.3 and 5.4.
"""

import tempfile
from functools import partial

import numpy as np

import oocarrays as ooc

SIZE, PASSES, SWEEPS = 257, 12, 64


def solution(size: int, waves: int) -> np.ndarray:
    """Return the exact solution that is so many half waves of a sine along each of the four borders."""
    x = np.linspace(0, (m := np.pi * waves), size)
    one = np.outer(np.sin(x), (np.exp(x - m) - np.exp(-x - m)) / (1 - np.exp(-2 * m)))  # sin(x) · sinh(x) / sinh(m)
    return one + one[:, ::-1] - one.T - one.T[::-1]


def swept(plate: ooc.ranks.LocalArrays, folder: str, passes=PASSES, sweeps=SWEEPS, **how) -> tuple:
    """A plate after so many passes of so many sweeps, in two stores in turn; and how much each pass changed it."""
    kernel, changes = partial(ooc.kernels.sweeps, count=sweeps), []
    for target in (f"{folder}/{number % 2 + 1}" for number in range(passes)):
        before, plate = plate, ooc.map_slabs(kernel, plate, target, depth=sweeps, overwrite=True, **how).run()
        changes.append(max(np.abs(plate.local(r)[...] - before.local(r)[...]).max() for r in range(plate.ranks)))
    return plate, changes


def main(picture: str = "jacobi.png") -> None:
    """Find the inside of a plate from its borders, from 20 °C on, and from the solution on every fourth point."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    exact = 20 + 76 * sum(np.sinc(k / 14) / k * solution(SIZE, 2 * k) for k in range(1, 14, 2))  # °C
    cold, layout = exact - np.pad(exact[1:-1, 1:-1] - 20, 1), ooc.Layout.of(exact.shape, "(block, block)", ranks=4)
    near = ooc.kernels.sweeps(cold[::4, ::4], 2000).repeat(4, 0).repeat(4, 1)[2 : SIZE + 2, 2 : SIZE + 2]
    left, right = (figure := Figure(figsize=(11, 4.6), layout="constrained")).subplots(1, 2)
    for name, inside in (("20 °C", cold), ("the solution on fewer points", near)):
        with tempfile.TemporaryDirectory() as folder:
            plate = ooc.create_array(f"{folder}/0", shape=exact.shape, dtype="f8", layout=layout, placement="local")
            plate[...] = cold + np.pad((inside - cold)[1:-1, 1:-1], 1)
            found, changes = swept(plate, folder, memory="64MiB")
            print(found, f"from {name}: off by {np.abs((heat := found[...]) - exact).max():.2f} °C at most", sep="\n")
            right.semilogy(SWEEPS * np.arange(1, PASSES + 1), changes, ".-", label=f"from {name}")
    figure.colorbar(left.imshow(heat, cmap="inferno"), ax=left, label="temperature, °C")
    left.contour(heat, levels=10, colors="white", linewidths=0.5)
    left.set(title="a plate: half of each border is hot, half cold", xlabel="column", ylabel="row")
    right.set(title=f"residual: the most that {SWEEPS} sweeps change", xlabel="sweeps", ylabel="°C")
    right.legend()
    figure.savefig(picture)
    print(f"the plate and its residuals: {picture}")


if __name__ == "__main__":
    main()
