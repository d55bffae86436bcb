"""The logs of `formats.py` with one change each: of a unit, the order, a separator, a hole or the
header."""

import re

import formats
from formats import TIME


def of(function, change):
    """Returns a function that makes the spoiled log."""
    return lambda: change(function())


def sub(pattern, replacement):
    return lambda text: re.sub(pattern, replacement, text)


def each_line(change, head=1):
    """Changes the lines below the head."""

    def changed(text):
        lines = text.split("\n")
        return "\n".join(lines[:head] + change([line for line in lines[head:] if line])) + "\n"

    return changed


def scaled(factor, column, separator=",", form="{:.0f}"):
    """Changes the unit of a column without a word in the header."""

    def change(lines):
        rows = []
        for line in lines:
            cells = line.split(separator)
            number = float(re.sub(r"[^\d.]", "", cells[column]))
            cells[column] = form.format(number * factor)
            rows.append(separator.join(cells))
        return rows

    return each_line(change)


def header(line):
    return lambda text: line + text[text.index("\n") :]


def shuffled(lines):
    return [line for pair in zip(lines[1::2], lines[::2], strict=False) for line in pair]


PLAIN = "timestamp,memory_used"


def plain(factor, form="{:.0f}", head=PLAIN):
    """A log of a time and an amount whose header has no unit."""
    return lambda: formats.lines(
        [head], lambda n, t, m: f"{formats.dashes(t)},{form.format(m * factor)}"
    )


def with_total(factor, head="timestamp,memory_total,memory_used"):
    def row(number, time, mib):
        return f"{formats.dashes(time)},{formats.CAPACITY * factor:.0f},{mib * factor:.0f}"

    return lambda: formats.lines([head], row)


def two_columns(head, other):
    return lambda: formats.lines([head], lambda n, t, m: f"{formats.dashes(t)},{other(n, m)},{m}")


def with_grouping(group):
    return lambda: formats.lines(
        ["time;memory (MiB)"], lambda n, t, m: f"{formats.dashes(t)};{f'{m:,}'.replace(',', group)}"
    )


LOGS = [
    # Units.
    ("unit: MiB without a word", plain(1), TIME),
    ("unit: KiB without a word", plain(1024), TIME),
    ("unit: bytes without a word", plain(1 << 20), TIME),
    ("unit: GiB without a word", plain(1 / 1024, "{:.4f}"), TIME),
    (
        "unit: nounits in KiB",
        of(
            formats.query_nounits,
            lambda text: re.sub(
                r", (\d{4,5}), (\d+)\n",
                lambda f: f", {int(f[1]) * 1024}, {int(f[2]) * 1024}\n",
                text,
            ).replace(" [MiB]", ""),
        ),
        TIME,
    ),
    ("unit: total in MiB, no words", with_total(1), TIME),
    ("unit: total in bytes, no words", with_total(1 << 20), TIME),
    ("unit: total in KiB, no words", with_total(1024), TIME),
    (
        "unit: MiB said, KiB meant",
        with_total(1 / 1024, "timestamp,memory_total (MiB),memory_used (MiB)"),
        TIME,
    ),
    (
        "unit: of amd, short names",
        of(formats.total_free_used, header("timestamp,total_vram,free_vram,used_vram")),
        TIME,
    ),
    (
        "unit: json in MiB",
        of(
            formats.json_lines,
            lambda text: re.sub(
                r'"gpu_mem_gb": ([\d.]+)', lambda f: f'"gpu_mem": {float(f[1]) * 953.674:.0f}', text
            ),
        ),
        TIME,
    ),
    (
        "unit: json in bytes",
        of(
            formats.json_lines,
            lambda text: re.sub(
                r'"gpu_mem_gb": ([\d.]+)', lambda f: f'"gpu_mem": {float(f[1]) * 1e9:.0f}', text
            ),
        ),
        TIME,
    ),
    (
        "unit: mmengine in bytes",
        of(formats.mmengine, sub(r"memory: (\d+)", r"memory: \g<1>000000")),
        TIME,
    ),
    ("unit: tqdm without one", of(formats.tqdm, sub(r"mem=([\d.]+)G", r"mem=\1")), 1),
    ("unit: epoch,memory", of(formats.epoch_gb, header("epoch,memory")), 1),
    # Order.
    ("order: from the end", of(formats.query_units, each_line(lambda lines: lines[::-1])), TIME),
    ("order: pairs exchanged", of(formats.query_units, each_line(shuffled)), TIME),
    (
        "order: used before total",
        of(
            formats.total_free_used,
            lambda text: re.sub(r"(?m)^([^,]*),([^,]*),([^,]*),([^,\n]*)$", r"\1,\4,\2,\3", text),
        ),
        TIME,
    ),
    (
        "order: free first",
        of(
            formats.total_free_used,
            lambda text: re.sub(r"(?m)^([^,]*),([^,]*),([^,]*),([^,\n]*)$", r"\3,\1,\4,\2", text),
        ),
        TIME,
    ),
    (
        "order: peak before memory",
        two_columns("timestamp,max_memory_mib,memory_mib", lambda n, m: 70000),
        TIME,
    ),
    (
        "order: host memory before",
        two_columns("timestamp,cpu_mem_mib,gpu_mem_mib", lambda n, m: 5000),
        TIME,
    ),
    (
        "order: share before memory",
        two_columns("timestamp,mem_percent,mem_mib", lambda n, m: m * 100 // formats.CAPACITY),
        TIME,
    ),
    (
        "order: duration before step",
        lambda: formats.lines(
            ["step_time,step,mem_gib"],
            lambda n, t, m: f"{0.5 + 0.01 * (n % 7):.2f},{n * 10},{m / 1024:.4f}",
        ),
        10,
    ),
    # Separators.
    ("separator: tabs", of(formats.query_units, sub(", ", "\t")), TIME),
    ("separator: semicolons", of(formats.query_units, sub(", ", ";")), TIME),
    ("separator: points between thousands", with_grouping("."), TIME),
    ("separator: commas between thousands", with_grouping(","), TIME),
    ("separator: spaces between thousands", with_grouping(" "), TIME),
    ("separator: apostrophes", with_grouping("'"), TIME),
    ("separator: two decimal commas", of(formats.decimal_commas, sub(r"(,\d\d)\d\d", r"\1")), TIME),
    (
        "separator: decimal comma in quotes",
        lambda: formats.lines(
            ["timestamp,memory (GiB)"],
            lambda n, t, m: f'{formats.dashes(t)},"{m / 1024:.2f}"'.replace(".", ","),
        ),
        TIME,
    ),
    ("separator: pipes", of(formats.query_units, sub(", ", " | ")), TIME),
    # Holes.
    (
        "hole: missing cells",
        of(
            formats.query_units,
            each_line(
                lambda lines: [
                    re.sub(r"\d+ MiB", "[N/A]", line, count=1) if n % 7 == 3 else line
                    for n, line in enumerate(lines)
                ]
            ),
        ),
        TIME,
    ),
    (
        "hole: rows left out",
        of(
            formats.query_units,
            each_line(lambda lines: [line for n, line in enumerate(lines) if n % 5]),
        ),
        TIME,
    ),
    (
        "hole: an hour",
        of(
            formats.query_units,
            each_line(
                lambda lines: lines[:200]
                + [line.replace(" 08:", " 10:").replace(" 09:", " 11:") for line in lines[200:]]
            ),
        ),
        TIME,
    ),
    ("hole: empty totals", of(formats.total_free_used, sub(r",81559,", ",,")), TIME),
    (
        "hole: lines cut off",
        of(
            formats.query_units,
            each_line(
                lambda lines: [line[:25] if n % 9 == 4 else line for n, line in enumerate(lines)]
            ),
        ),
        TIME,
    ),
    (
        "hole: text among rows",
        of(
            formats.step_gb,
            each_line(
                lambda lines: [
                    line if n % 4 else line + "\nsaving checkpoint, please wait"
                    for n, line in enumerate(lines)
                ]
            ),
        ),
        10,
    ),
    # Headers.
    (
        "header: none, total first",
        lambda: formats.lines([], lambda n, t, m: f"{formats.slashes(t)}, {formats.CAPACITY}, {m}"),
        TIME,
    ),
    (
        "header: none, step and GB",
        of(formats.step_gb, lambda text: text[text.index("\n") + 1 :]),
        10,
    ),
    ("header: unknown names", of(formats.total_free_used, header("a,b,c,d")), TIME),
    (
        "header: in the middle again",
        of(formats.query_units, lambda text: text + text.split("\n")[0] + "\n"),
        TIME,
    ),
    (
        "header: other words for the time",
        of(formats.total_free_used, header("datetime,total,free,used")),
        TIME,
    ),
    (
        "header: in capitals",
        of(
            formats.query_units, lambda text: text.split("\n")[0].upper() + text[text.index("\n") :]
        ),
        TIME,
    ),
    (
        "header: a comment above",
        of(formats.query_units, lambda text: "# my run, with amp\n" + text),
        TIME,
    ),
]
