"""The cases, one module a group, each with a tuple `CASES`.

How a case is added
-------------------
1. Choose the module of its group (`cases/rechunk.py`, …), or add one: its name is that of the table it is drawn in
   (`results/rechunk.md`), and its docstring is the text above that table. Import only the standard library and `case`,
   for `run.py list` reads every case.
2. Write a `Case`: `name` (of its result file), `question` (one sentence), `data` (sources by name, each made once by a
   function `make(path, **params)` such as `data:field`), `ways`, and `check`, a function check(job) -> "ok" or what is
   wrong, which knows the right answer by other means (`data:rechunked`).
3. A way is a function run(job) -> dict in `peers/`, named `module:function`; ours comes first, for ratios are to the
   first. It makes `job.target`, and reads sources, budget and parameters from the job: `job.source`, `job.memory`,
   `job.cores`, `job.scratch`, and every parameter of the source, the case and the way as an attribute
   (`way("TensorStore", "peers.tensorstore:rechunk", variant="staged")` is read as `job.variant`). It returns what it
   knows of itself: `note`, `tasks`, or all of `peers.ours.told`. An array under `output` is saved as TARGET.npy after
   its time is taken, for the check. Imports stand at the top of its module, so that a missing package is reported.
4. `tiny` are the parameters of the job by which each process is warmed up, in place of the case's.
5. A way with a pool or a cluster is decorated with `within(context)`, which is entered before the clock starts.
6. Where milliseconds are measured, a way repeats within its process and returns `figures`: {name: [seconds, …]}; the
   case says `measure="figures"`, and its table has a row for each name.
7. `--scale` divides the parameters named in `case.LENGTHS`. `short=True` puts the case into the short set.
8. Run it tiny: `python benchmarks/run.py NAME --scale 64 --rounds 1`; `tests/test_benchmarks.py` runs every case so.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType

import papers
from case import Case


def modules() -> dict[str, ModuleType]:
    """Return the modules of cases by name, those of papers last."""
    return {
        each.name: importlib.import_module(f"{package.__name__}.{each.name}")
        for package in (sys.modules[__name__], papers)
        for each in pkgutil.iter_modules(package.__path__)
    }


def is_of_papers(case: Case) -> bool:
    """Whether a case reproduces what a paper measured."""
    return any(case in module.CASES for module in modules().values() if module.__name__.startswith("papers."))


def every() -> dict[str, Case]:
    """Return every case by name."""
    return {case.name: case for module in modules().values() for case in module.CASES}
