"""Make the small pictures on the cards of the notebooks from those of a built site: python gallery.py _build/html."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
SIZE = 480, 270
# Which picture of each notebook, and the part of it that is shown: left, top, right, bottom as shares.
PICTURES = {
    "sst-on-a-cluster": (0, (0.5, 0.6, 0.97, 1.0)),
    "filling-gaps": (0, (0.0, 0.0, 1.0, 1.0)),
    "trends": (0, (0.0, 0.535, 0.88, 0.74)),
    "institutions": (0, (0.0, 0.25, 1.0, 0.75)),
    "moorings": (0, (0.0, 0.02, 1.0, 0.6)),
    "currents": (0, (0.5, 0.02, 0.885, 0.42)),
    "constants": (0, (0.0, 0.0, 0.63, 1.0)),
}


def main() -> None:
    site = Path(sys.argv[1])
    for name, (number, (left, top, right, bottom)) in PICTURES.items():
        page = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        sources = list(dict.fromkeys(re.findall(r'src="\.\./(_images/[0-9a-f]+\.png)"', page)))
        picture = Image.open(site / sources[number]).convert("RGB")
        w, h = picture.size
        part = picture.crop((int(left * w), int(top * h), int(right * w), int(bottom * h)))
        card = ImageOps.fit(part, SIZE)
        card.quantize(96).save(HERE / "_static" / "gallery" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
