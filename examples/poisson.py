"""Poisson's equation on a sea with islands: iterated sweeps of one array, with two others beside it.

∇²ψ = ζ gives the stream function ψ of a wind-driven flow from its vorticity ζ. ψ is 0 on land, whose mask is the third
array; east and west are joined. Sweeps of one pass over the disk read ζ and the mask once.
"""

import tempfile

import numpy as np
import zarr

import oocarrays as ooc

ROWS, COLUMNS, SWEEPS = 192, 256, 240


def ocean(rows: int = ROWS, columns: int = COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    """Return a vorticity of two gyres, and a mask of land: both coasts, two islands."""
    y, x = np.linspace(-1, 1, rows)[:, None], np.linspace(0, 2, columns, endpoint=False)
    land = np.broadcast_to(abs(y) > 0.95, (rows, columns)).copy()
    for row, column, radius in ((0.3, 0.6, 0.2), (-0.4, 1.5, 0.15)):
        land |= (y - row) ** 2 + (x - column) ** 2 < radius**2
    return -np.sin(np.pi * y) * (1 + 0.3 * np.cos(np.pi * x)), land


def sweep(psi: np.ndarray, vorticity: np.ndarray, land: np.ndarray) -> np.ndarray:
    """One of Jacobi's sweeps of a block, where there is sea; its own border stays."""
    made = psi.copy()
    around = psi[:-2, 1:-1] + psi[2:, 1:-1] + psi[1:-1, :-2] + psi[1:-1, 2:]
    made[1:-1, 1:-1] = (around - vorticity[1:-1, 1:-1]) / 4
    made[land] = 0
    return made


def in_memory(psi: np.ndarray, vorticity: np.ndarray, land: np.ndarray, sweeps: int = SWEEPS) -> np.ndarray:
    """The same by numpy, on whole arrays with a column of the other end on either side."""
    right, mask = (np.pad(each, ((0, 0), (1, 1)), "wrap") for each in (vorticity, land))
    for _ in range(sweeps):
        psi = sweep(np.pad(psi, ((0, 0), (1, 1)), "wrap"), right, mask)[:, 1:-1]
    return psi


def main() -> None:
    """Solve it out of core, and compare what comes of it with numpy's."""
    vorticity, land = ocean()
    arrays = {"psi": np.zeros_like(vorticity), "vorticity": vorticity, "land": land}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in arrays.items():
            zarr.create_array(f"{folder}/{name}.zarr", data=data, chunks=(32, COLUMNS))
        sources = [f"{folder}/{name}.zarr" for name in arrays]
        how = {"boundary": {1: "periodic"}, "resources": ooc.Resources(memory="64MiB", fuse=24, window=64)}
        job = ooc.iterate(sweep, sources, f"{folder}/flow.zarr", sweeps=SWEEPS, **how)
        print(job.explain())
        flow = job.run()[...]
    print(f"stream function from {flow.min():.0f} to {flow.max():.0f}, 0 on land: {not flow[land].any()}")
    print(f"as numpy's: {np.array_equal(flow, in_memory(*arrays.values()))}")


if __name__ == "__main__":
    main()
