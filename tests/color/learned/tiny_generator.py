"""Settings of a small generator network."""

from everlight.color.chroma_histogram import ChromaWindow
from everlight.color.learned.parts.generator_net import GeneratorSettings

TINY = GeneratorSettings(
    ChromaWindow(16, -1.4, 1.4),
    (4, 8),
    fingerprint=(4, 8),
    fingerprint_window=ChromaWindow(16, -1.5, 1.5),
    features=4,
)
