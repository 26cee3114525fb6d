"""Streams against a list of bytes for each cell: any calls in any order, closed, killed and opened again."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import dask
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import oocarrays as ooc
from tests.profiles import examples

SHAPES = [(), (1,), (5,), (4, 3), (2, 1, 3), (18,)]
DTYPES = ["i4", "f8", "u1", "i2"]
BLOCKS = [
    {},
    {"cb_block": 10, "ib_block": 16, "ib_pointers": 2, "superblock": 64},
    {"cb_block": 8, "ib_block": 24, "superblock": 24},
    {"cb_block": 8, "ib_block": 8, "ib_pointers": 2, "superblock": 128},
    {"cb_block": 7, "ib_block": 5, "ib_pointers": 1, "superblock": 15},
]


class Machine(RuleBasedStateMachine):
    @initialize(
        shape=st.sampled_from(SHAPES),
        dtype=st.sampled_from(DTYPES),
        ranks=st.integers(1, 3),
        blocks=st.sampled_from(BLOCKS),
        regular=st.lists(st.sampled_from([(1, False), (2, False), (1, True), (3, True)]), max_size=4),
        events=st.integers(0, 2),
    )
    def make(self, shape: Any, dtype: str, ranks: int, blocks: Any, regular: Any, events: int) -> None:
        """Begin with some of NB, CB and IB, each of any length: rows in part, and borders anywhere."""
        self.folder = getattr(self, "folder", None) or tempfile.mkdtemp()
        self.place = f"{self.folder}/s.zarr"
        self.shape, self.item = shape, np.dtype(dtype)
        self.count = int(np.prod(shape))
        self.blocks = blocks
        self.mode = "w"
        with dask.config.set({"oocarrays.durable": False}):
            self.streams = ooc.streams.open_streams(
                self.place, "w", shape=shape, dtype=dtype, ranks=ranks, blocks=blocks, overwrite=True
            )
        self.cells = [bytearray() for _ in range(self.count)]
        self.flushed = [b"" for _ in range(self.count)]
        self.positions = [0] * self.count
        self.turn = 0
        self.is_replaced = False
        for n, strided in regular:
            self.write_level(n, strided)
        for _ in range(events):
            self.write_cells(list(range(self.count)))
            self.write_level(1, False)

    def items(self, *shape: int) -> np.ndarray:
        size = int(np.prod(shape))
        self.turn += 1
        return (np.arange(size) + 37 * self.turn).astype(self.item).reshape(shape)

    def put(self, cell: int, data: bytes) -> None:
        """Write as C does: in mode "a" a stream that is written, and no other, goes to its end first."""
        if data:
            if self.mode == "a":
                self.positions[cell] = len(self.cells[cell])
            start, stream = self.positions[cell], self.cells[cell]
            self.is_replaced |= start < len(stream)
            stream.extend(bytes(max(start - len(stream), 0)))
            stream[start : start + len(data)] = data
            self.positions[cell] += len(data)

    writes = precondition(lambda self: self.mode != "r")

    @writes
    @rule(n=st.sampled_from([None, 0, 1, 2, 3, 7]), strided=st.booleans())
    def write_level(self, n: int | None, strided: bool) -> None:
        within = () if n is None else (n,)
        values = self.items(*self.shape, *within)
        given = np.repeat(values, 2, axis=-1)[..., ::2] if strided and values.ndim else values
        self.streams.write(given)
        for cell, row in enumerate(values.reshape(self.count, -1)):
            self.put(cell, row.tobytes())

    @writes
    @rule()
    def write_scalar(self) -> None:
        value = self.items(1)[0]
        self.streams.write(value)
        for cell in range(self.count):
            self.put(cell, value.tobytes())

    @writes
    @rule(data=st.data())
    def write_where(self, data: st.DataObject) -> None:
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=self.count, max_size=self.count))).reshape(
            self.shape
        )
        values = self.items(*self.shape)
        self.streams.write(values, where=mask)
        for cell in np.flatnonzero(mask):
            self.put(int(cell), values.reshape(-1)[cell].tobytes())

    @writes
    @rule(data=st.data())
    def write_at(self, data: st.DataObject) -> None:
        self.write_cells(data.draw(st.lists(st.integers(0, self.count - 1), max_size=20)))

    def write_cells(self, cells: list[int]) -> None:
        values = self.items(len(cells))
        self.streams.write(values, at=np.array(cells, np.int64))
        for cell, value in zip(cells, values, strict=True):
            self.put(cell, value.tobytes())

    @writes
    @rule(data=st.data())
    def write_ragged(self, data: st.DataObject) -> None:
        counts = np.array(data.draw(st.lists(st.integers(0, 9), min_size=self.count, max_size=self.count)))
        values = self.items(int(counts.sum()))
        self.streams.write((counts.reshape(self.shape), values))
        for cell, part in enumerate(np.split(values, np.cumsum(counts)[:-1])):
            self.put(cell, part.tobytes())

    @writes
    @rule(data=st.data())
    def each(self, data: st.DataObject) -> None:
        asked = data.draw(st.lists(st.integers(0, 3), min_size=self.count, max_size=self.count))
        values = self.items(4)
        back = data.draw(st.sampled_from([0, self.item.itemsize]))

        def one(cell: Any) -> Any:
            assert np.ravel_multi_index(cell.index, self.shape) == cell.number if self.shape else cell.index == ()
            if back and cell.tell() >= back:
                cell.seek(-back, 1)
                got = cell.read(1).tobytes()
            else:
                got = b""
            cell.write(values[: asked[cell.number]])
            return got

        found = self.streams.each(one)
        for cell in range(self.count):
            start = self.positions[cell]
            if back and start >= back:
                assert found is not None
                want = bytes(self.cells[cell][start - back : start])
                got = found.reshape(-1)[cell]
                assert got == (want if len(want) == back else b""), (got, want)
                if len(want) != back:
                    self.positions[cell] -= back
            if asked[cell]:
                self.put(cell, values[: asked[cell]].tobytes())

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        most = max(map(len, self.cells), default=0) + 3
        if data.draw(st.booleans()):
            offset = data.draw(st.integers(0, most))
            self.streams.seek(offset)
            self.positions = [offset] * self.count
        else:
            offsets = data.draw(st.lists(st.integers(0, most), min_size=self.count, max_size=self.count))
            self.streams.seek(np.array(offsets).reshape(self.shape))
            self.positions = list(offsets)

    @rule()
    def seek_end(self) -> None:
        self.streams.seek(0, 2)
        self.positions = [len(cell) for cell in self.cells]

    @rule(n=st.one_of(st.none(), st.integers(-1, 9)), where=st.booleans())
    def read(self, n: int | None, where: bool) -> None:
        mask = np.arange(self.count).reshape(self.shape) % 2 == 0 if where else None
        got = self.streams.read(n, where=mask)
        wanted = []
        for cell in range(self.count):
            start = self.positions[cell]
            left = max(len(self.cells[cell]) - start, 0) // self.item.itemsize
            take = left if n == -1 else min(1 if n is None else n, left)
            take = 0 if mask is not None and not mask.reshape(-1)[cell] else take
            wanted.append(bytes(self.cells[cell][start : start + take * self.item.itemsize]))
            self.positions[cell] += take * self.item.itemsize
        found = got.values if isinstance(got, ooc.streams.Ragged) else got
        assert found.tobytes() == b"".join(wanted)
        if isinstance(got, ooc.streams.Ragged):
            assert [len(each.tobytes()) for each in got] == list(map(len, wanted))

    @rule(n=st.one_of(st.none(), st.integers(1, 9)), start=st.integers(0, 9))
    def read_on(self, n: int | None, start: int) -> None:
        """Read all from an item on, call by call, as most programs do: over the borders of segments."""
        self.streams.seek(start * self.item.itemsize)
        self.positions = [start * self.item.itemsize] * self.count
        while min(len(c) - p for c, p in zip(self.cells, self.positions, strict=True)) >= (n or 1) * self.item.itemsize:
            self.read(n, False)
        self.read(-1, False)

    @rule()
    def everything(self) -> None:
        size = self.item.itemsize
        lists = [np.frombuffer(bytes(c[: len(c) // size * size]), self.item).tolist() for c in self.cells]
        assert [each.tolist() for each in self.streams.to_ragged()] == lists
        if self.mode == "r":
            assert [each.tolist() for each in self.streams.to_dask().compute(scheduler="sync")] == lists
        with tempfile.TemporaryDirectory() as folder:
            array = np.moveaxis(self.streams.to_zarr(f"{folder}/z.zarr", fill=7)[...], 0, -1)
        for cell, row in zip(lists, array.reshape(self.count, -1).tolist(), strict=True):
            assert row == [*cell, *[7] * (len(row) - len(cell))]

    @rule()
    def tell(self) -> None:
        assert self.streams.tell().reshape(-1).tolist() == self.positions
        assert self.streams.lengths.reshape(-1).tolist() == list(map(len, self.cells))
        ends = [p >= len(c) for p, c in zip(self.positions, self.cells, strict=True)]
        assert self.streams.eof().reshape(-1).tolist() == ends

    @rule(data=st.data())
    def one_cell(self, data: st.DataObject) -> None:
        cell = data.draw(st.integers(0, self.count - 1))
        index = tuple(int(k) for k in np.unravel_index(cell, self.shape)) if self.shape else ()
        whole = len(self.cells[cell]) // self.item.itemsize * self.item.itemsize
        assert self.streams[index].tobytes() == bytes(self.cells[cell][:whole])

    @rule()
    def flush(self) -> None:
        self.streams.flush()
        self.is_replaced = False
        if self.mode != "r":
            self.flushed = [bytes(cell) for cell in self.cells]

    @rule(mode=st.sampled_from(["r", "a", "r+"]), ranks=st.integers(1, 4), n=st.integers(1, 9))
    def close_and_open(self, mode: str, ranks: int, n: int) -> None:
        self.streams.close()
        self.flushed = [bytes(cell) for cell in self.cells]
        self.open("r", 1)
        self.read_on(n, 0)
        if mode != "r":
            self.streams.close()
            self.open(mode, ranks)

    @rule(dtype=st.sampled_from(DTYPES), ranks=st.integers(1, 3), regular=st.integers(0, 3))
    @precondition(lambda self: self.turn > 12)
    def make_again(self, dtype: str, ranks: int, regular: int) -> None:
        self.streams.close()
        self.make(self.shape, dtype, ranks, self.blocks, [(2, True)] * regular, 1)

    @rule(mode=st.sampled_from(["r", "a", "r+"]), ranks=st.integers(1, 4))
    def kill(self, mode: str, ranks: int) -> None:
        """What a process holds when it is killed is gone, and so is its lock; what it replaced may be old or new.

        More may be there than was flushed: a file is flushed when it goes over to another mode.
        """
        if self.is_replaced:
            self.flush()
        self.streams._part.end()
        self.streams._file.release()
        had, self.cells = self.cells, [bytearray(cell) for cell in self.flushed]
        self.open(mode, ranks)
        self.cells = self.stored()
        for cell, flushed, held in zip(self.cells, self.flushed, had, strict=True):
            assert cell.startswith(flushed)
            assert held.startswith(cell)
        self.positions = [len(cell) if mode == "a" else 0 for cell in self.cells]
        self.flushed = [bytes(cell) for cell in self.cells]

    def stored(self) -> list[bytearray]:
        with ooc.streams.open_streams(self.place, dtype="u1") as streams:
            return [bytearray(each.tobytes()) for each in streams.to_ragged()]

    def open(self, mode: Any, ranks: int) -> None:
        with dask.config.set({"oocarrays.durable": False}):
            self.streams = ooc.streams.open_streams(self.place, mode, ranks=ranks, blocks=self.blocks)
        self.mode = mode
        self.positions = [len(cell) if mode == "a" else 0 for cell in self.cells]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.streams.close()
            with ooc.streams.open_streams(self.place) as streams:
                whole = [len(c) // self.item.itemsize * self.item.itemsize for c in self.cells]
                wanted = b"".join(bytes(c[:n]) for c, n in zip(self.cells, whole, strict=True))
                assert streams.to_ragged().values.tobytes() == wanted
            shutil.rmtree(self.folder)


TestMachine = Machine.TestCase
TestMachine.settings = examples(40, stateful_step_count=20)
