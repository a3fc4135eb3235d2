"""Figures on disk: a PDF for print, a PNG to look at, and the numbers that were drawn.

The same figure gives the same bytes: no dates, no versions in the files. So git shows a changed
figure only where the result changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import pandas
from matplotlib.figure import Figure

DPI = 150  # of the PNG
_NO_METADATA = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(
    figure: Figure, folder: Path, stem: str, data: pandas.DataFrame | None = None
) -> list[Path]:
    """Write ``<stem>.png``, ``<stem>.pdf`` and, given ``data``, ``<stem>.csv`` into ``folder``.

    The folder is made if needed. Each file is written under a temporary name, and all are written
    before the first is renamed, so that a reader never meets half a figure.

    Args:
        data: what was plotted, written without its index and with six significant digits.

    Returns:
        The paths in the order above; ``IPython.display.Image(paths[0])`` shows the figure.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    suffixes = [*_NO_METADATA] + ([] if data is None else [".csv"])
    moves = [
        (folder / f".{stem}.{os.getpid()}.tmp{suffix}", folder / f"{stem}{suffix}")
        for suffix in suffixes
    ]
    try:
        for (temporary, _), suffix in zip(moves, suffixes, strict=True):
            if suffix == ".csv":
                data.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
            else:
                with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
                    figure.savefig(temporary, dpi=DPI, metadata=_NO_METADATA[suffix])
        for temporary, final in moves:
            os.replace(temporary, final)
    finally:
        for temporary, _ in moves:
            temporary.unlink(missing_ok=True)
    return [final for _, final in moves]
