"""Names of cameras, which files and data sets spell in different ways."""

UNNAMED = "unnamed camera"
"""Camera of files that name none."""
NUS8_CAMERAS = (
    "Canon1DsMkIII",
    "Canon600D",
    "FujifilmXM1",
    "NikonD5200",
    "OlympusEPL6",
    "PanasonicGX1",
    "SamsungNX2000",
    "SonyA57",
)
"""Cameras of NUS-8, in the release's names and order of tables."""
DATA_SET_CAMERAS = {
    "Canon 1DMarkIII": "Canon EOS-1D Mark III",
    "Canon 20D": "Canon EOS 20D",
    "Canon 300D": "Canon EOS 300D",
    "Canon 40D": "Canon EOS 40D",
    "Canon 500D": "Canon EOS 500D",
    "Canon 50D": "Canon EOS 50D",
    "Canon 5DMarkII": "Canon EOS 5D Mark II",
    "Canon 600D": "Canon EOS 600D",
    "Canon 60D": "Canon EOS 60D",
    "Canon1DsMkIII": "Canon EOS-1Ds Mark III",
    "Canon550D": "Canon EOS 550D",
    "Canon5D": "Canon EOS 5D",
    "Canon600D": "Canon EOS 600D",
    "Canon_5DSR": "Canon EOS 5DS R",
    "FujifilmXM1": "Fujifilm X-M1",
    "NikonD5200": "Nikon D5200",
    "Nikon_D810": "Nikon D810",
    "OlympusEPL6": "Olympus E-PL6",
    "PanasonicGX1": "Panasonic DMC-GX1",
    "SamsungNX2000": "Samsung NX2000",
    "SonyA57": "Sony SLT-A57",
}
"""Names of cameras by the names that data sets give them.

The sets are the sensitivities of Jiang et al. 2013, NUS-8, Cube+, Gehler-Shi and INTEL-TAU.
"""
_BY_DATA_SET = {name.casefold(): camera for name, camera in DATA_SET_CAMERAS.items()}


def plain_name(name: str) -> str:
    """Return a camera's name for comparison.

    Case, outer spaces and a repeated maker do not count: "Canon Canon EOS 5D" is "canon eos 5d".
    Names of data sets become those of the cameras. Every other difference is another camera.
    """
    words = name.casefold().split()
    name = " ".join(words)
    if name in _BY_DATA_SET:
        return plain_name(_BY_DATA_SET[name])
    # The maker has one or two words, as NIKON CORPORATION.
    if words[:1] and words[0] in words[1:3]:
        words = words[words.index(words[0], 1) :]
    return " ".join(words)


def make_and_model(make: str, model: str) -> str:
    """Return a camera's name from the tags Make and Model; the model may begin with the maker."""
    make, model = make.strip(), model.strip()
    repeated = make.split()[:1] and make.split()[0].casefold() == model.casefold().split(" ")[0]
    return model if repeated else f"{make} {model}".strip()


def is_same_camera(one: str, other: str) -> bool:
    """Return True if two names are of one camera, as `plain_name` compares them."""
    return bool(plain_name(one)) and plain_name(one) == plain_name(other)
