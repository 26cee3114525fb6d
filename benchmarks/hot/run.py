"""Medians of the hot paths of this checkout as `benchmarks/beside.py` compares them with those of another one.

python benchmarks/hot/run.py --json out.json
python benchmarks/beside.py --other ../older --turns 3 hot/run.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Run the benchmarks in a process of their own, and keep the median of each path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the medians")
    parser.add_argument("--only", default="", help="run paths whose names contain this word")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        command = [sys.executable, "-m", "pytest", str(HERE), "-q", "-k", options.only, f"--benchmark-json={found}"]
        subprocess.run(command, check=True, cwd=HERE.parents[1])
        times = json.loads(found.read_text())["benchmarks"]
    results = [{"name": each["params"]["name"], "seconds": each["stats"]["median"]} for each in times]
    if options.json:
        options.json.write_text(json.dumps({"results": results}, indent=1))


if __name__ == "__main__":
    main()
