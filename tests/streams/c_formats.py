"""C's printf and fscanf as an oracle: a table of formats, values and output, and a C program that makes the output.

``python -m tests.streams.c_formats`` writes the output anew; tests compare with the table where no compiler is.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("c_formats.json")
"""Printed: format, values, output. Scanned: format, text, what fscanf returned, bytes taken, and values."""
SPEC = re.compile(r"%(?:%|(\*)?[-+ #0]*(\d*|\*)(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgG]|\[\^?\]?[^]]*\]))")
WIDTHS = {"hh": "char", "h": "short", "": "int", "l": "long", "ll": "long long", "j": "long", "z": "long", "t": "long"}
FLOATS = {"": "float", "l": "double", "L": "long double"}
HEADERS = ("math.h", "stddef.h", "stdint.h", "stdio.h", "sys/types.h")


def text(data: str) -> str:
    """Return a literal of C."""
    return '"' + "".join(f"\\{byte:03o}" for byte in data.encode()) + '"'


def _value(value: Any, kind: str, length: str | None) -> str:
    if kind == "s":
        return text(value)
    if kind in "fFeEgG":
        special = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
        return f"({'long double' if length == 'L' else 'double'}){special.get(repr(value), repr(value))}"
    wide = "long long" if length in ("l", "ll", "j", "z", "t") else "int"
    return f"({wide}){value}LL"


def _printing(format: str, values: list[Any]) -> str:
    given, left = [], list(values)
    for star, width, precision, length, kind in SPEC.findall(format):
        for part in (star, width, precision):
            if part == "*":
                given.append(f"(int){left.pop(0)}")
        if kind:
            given.append(_value(left.pop(0), kind, length or None))
    return f"    printf({', '.join([text(format), *given])}); putchar(0);\n"


def _scanning(format: str, data: str) -> str:
    variables, shown = [], []
    for star, _, _, length, kind in SPEC.findall(format):
        if not kind or star:
            continue
        name = f"v{len(variables)}"
        if kind[0] in "cs[":
            variables.append(f"char {name}[64] = {{0}};")
            shown.append(f'for (char *p = {name}; *p; p++) printf("%02x", (unsigned char)*p);')
        elif kind in "fFeEgG":
            variables.append(f"{FLOATS[length]} {name} = 0;")
            shown.append(f'printf("%.9g", (double){name});')
        else:
            variables.append(f"{'signed' if kind in 'di' else 'unsigned'} {WIDTHS[length]} {name} = 0;")
            shown.append(f'printf("%lld", (long long){name});')
    names = [f"v{k}" if each.startswith("char ") else f"&v{k}" for k, each in enumerate(variables)]
    prints = " ".join(f"if (n > {k}) {{ {each} }} putchar('\\1');" for k, each in enumerate(shown))
    return (
        f"    {{ {' '.join(variables)} FILE *f = tmpfile(); fputs({text(data)}, f); rewind(f);"
        f" int n = fscanf({', '.join(['f', text(format), *names])});"
        f' printf("%d\\1%ld\\1", n, ftell(f)); {prints} fclose(f); putchar(0); }}\n'
    )


def compiler() -> str | None:
    """Return a C compiler, where the library is the one that the table is of: others differ in what C leaves open."""
    if platform.libc_ver()[0] != "glibc":
        return None
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def from_c(path: str) -> dict[str, Any]:
    """Compile and run the cases of the table."""
    cases = json.loads(TABLE.read_text())
    printed, scanned = ([case[:2] for case in cases[name]] for name in ("printed", "scanned"))
    head = "#define _GNU_SOURCE\n" + "".join(f"#include <{name}>\n" for name in HEADERS)
    body = "".join([_printing(*case) for case in printed] + [_scanning(*case) for case in scanned])
    with tempfile.TemporaryDirectory() as folder:
        source, program = f"{folder}/formats.c", f"{folder}/formats"
        Path(source).write_text(f"{head}int main(void) {{\n{body}    return 0;\n}}\n")
        subprocess.run([path, "-w", "-o", program, source], check=True, timeout=60)
        out = subprocess.run([program], check=True, capture_output=True, timeout=60).stdout
    each = [part.decode("latin-1") for part in out.split(b"\0")]
    shown = [part.split("\1") for part in each[len(printed) : -1]]
    return {
        "printed": [[*case, out] for case, out in zip(printed, each, strict=False)],
        "scanned": [
            [*case, int(count), int(place), values[:-1]]
            for case, (count, place, *values) in zip(scanned, shown, strict=True)
        ],
    }


def table() -> dict[str, Any]:
    """Return formats, values and what C made of them: here, if a compiler is installed, else where it was written."""
    path = compiler()
    found: dict[str, Any] = json.loads(TABLE.read_text()) if path is None else from_c(path)
    return found


if __name__ == "__main__":
    found = compiler()
    assert found is not None, "no C compiler"
    made = {name: ",\n".join(map(json.dumps, rows)) for name, rows in from_c(found).items()}
    TABLE.write_text(f'{{"printed": [\n{made["printed"]}\n], "scanned": [\n{made["scanned"]}\n]}}\n')
