"""The tiny world: word problems, known error habits, and a model small enough for a laptop."""

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
MODEL_DIR, WEAK_DIR = ASSETS / "model", ASSETS / "weak"
ENCODER_DIR = ASSETS / "encoder"
