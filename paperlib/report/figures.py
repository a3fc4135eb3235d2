"""Figures on disk: a PDF for print, a PNG to look at, and the numbers that were drawn.

The same figure gives the same bytes: no dates, no versions in the files. So git shows a changed
figure only where the result changed.
"""

from pathlib import Path

import matplotlib
import pandas
from matplotlib.figure import Figure

from paperlib.files import written_together

DPI = 150  # of the PNG
_NO_METADATA = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(
    figure: Figure, folder: Path, stem: str, data: pandas.DataFrame | None = None
) -> list[Path]:
    """Write ``<stem>.png``, ``<stem>.pdf`` and, given ``data`` (what was plotted, six significant
    digits), ``<stem>.csv`` into ``folder``, all or none of them; the paths in this order."""
    suffixes = [*_NO_METADATA] + ([] if data is None else [".csv"])
    finals = [Path(folder) / f"{stem}{suffix}" for suffix in suffixes]
    with written_together(finals) as temporary:
        for path, suffix in zip(temporary, suffixes, strict=True):
            if suffix == ".csv":
                data.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
            else:
                with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
                    figure.savefig(path, dpi=DPI, metadata=_NO_METADATA[suffix])
    return finals
